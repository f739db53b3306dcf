"""What an import brings with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tieredkv
from tieredkv import backends, loading, observe, tiers

HEAVY = {"click", "glide_shared", "glide_sync", "hf_xet", "huggingface_hub", "hypothesis"}
HEAVY |= {"numpy", "rich", "trio", "uvloop", "yaml"}


def loaded_by(statement: str) -> set[str]:
    """Return the top-level packages that a statement loads in a fresh interpreter."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(finished.stdout.split())


@pytest.mark.parametrize("module", ["tieredkv", "tieredkv.store", "tieredkv.backends.disk"])
def test_no_vendor_and_no_tool_is_imported(module: str) -> None:
    assert not loaded_by(f"import {module}") & HEAVY


def test_the_bare_import_does_not_even_load_an_event_loop() -> None:
    assert not loaded_by("import tieredkv") & {"anyio", "asyncio", "attr", "xxhash"}


def test_a_store_that_is_not_open_has_loaded_little() -> None:
    script = "import sys\nfrom tieredkv import TieredStore\nprint(*sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(finished.stdout.split()) & {
        "tieredkv.backends.base",
        "tieredkv.loading.configuration",
        "tieredkv.observe.stats",
        "tieredkv.tiers.assembly",
        "tieredkv.tls",
    }


@pytest.mark.parametrize("package", [tieredkv, backends, loading, observe, tiers])
def test_every_public_name_is_there_and_others_are_refused(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is getattr(package, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the attribute raises


@pytest.mark.parametrize("package", [tieredkv, backends])
def test_names_that_are_not_loaded_yet_are_listed(package: object) -> None:
    assert set(package.__all__) <= set(dir(package))  # type: ignore[attr-defined]
