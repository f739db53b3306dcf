"""Packages that are missing or too old are named, with the command that installs them."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest

from tests.hfbucket.media import Buckets
from tieredkv.backends import HFBucketBackend
from tieredkv.clients.hub import load_hub
from tieredkv.errors import MissingDependencyError

pytestmark = [pytest.mark.anyio, pytest.mark.network]

HUB = r"pip install 'huggingface_hub>=1.5,<3'"
XET = r"pip install 'hf-xet>=1.7,<2'"


def package(name: str, **attributes: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(attributes)
    return module


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "need huggingface_hub"),
        (package("huggingface_hub", __version__="1.4.9"), "1.4.9 has no get_async_session, HfApi"),
        (
            package(
                "huggingface_hub",
                __version__="not a version",
                get_async_session=None,
                HfApi=SimpleNamespace(),
            ),
            r"not a version has no HfApi\.batch_bucket_files",
        ),
    ],
    ids=["absent", "too old", "without buckets"],
)
async def test_a_hub_client_that_does_not_do(
    found: ModuleType | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("huggingface_hub.constants")
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)
    backend = HFBucketBackend("hf://buckets/o/b", token="t", endpoint="http://127.0.0.1:9")
    with pytest.raises(MissingDependencyError, match=f"{message}.*: {HUB}"):
        await backend.open()
    await backend.aclose()


async def test_its_methods_count_and_not_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.__version__", "unknown")
    assert load_hub().startswith("http")


@pytest.mark.parametrize(
    ("found", "message"),
    [(None, "need hf_xet"), (package("hf_xet", XetDownloadStreamGroup=object), "is too old")],
    ids=["absent", "too old"],
)
async def test_an_xet_that_does_not_do(
    buckets: Buckets, found: ModuleType | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hf_xet", found)
    backend = buckets.backend()
    with pytest.raises(MissingDependencyError, match=f"{message}.*{XET}"):
        await backend.open()
    await backend.aclose()
