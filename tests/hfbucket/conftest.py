"""Local Hubs for the tests of the bucket backend, and what the vendors' packages may touch."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module

import pytest

# The clients read all this when they are imported: nothing may touch the user's home.
_HF_HOME = tempfile.mkdtemp(prefix="hfbucket-tests-")
os.environ.update(
    HF_HOME=_HF_HOME,
    HF_XET_CACHE=f"{_HF_HOME}/xet",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    RUST_LOG="off",
)
os.environ.pop("HF_TOKEN", None)

import_module("hf_xet")  # it opens a log, for good

from tests.hfbucket.media import Buckets, RawClient  # noqa: E402 (after its environment)
from tieredkv.testing import hub  # noqa: E402
from tieredkv.testing.leaks import LeakCheck  # noqa: E402


def pytest_unconfigure() -> None:
    """Remove what the clients have kept."""
    shutil.rmtree(_HF_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_hub() -> Iterator[hub.LocalHub]:
    """A Hub for tests that inject nothing."""
    with hub.start(process=True) as running:
        yield running


@pytest.fixture(scope="session")
def raw_client() -> Iterator[RawClient]:
    """The vendors' client, to look past the backend."""
    with RawClient() as client:
        yield client


@pytest.fixture
def server(shared_hub: hub.LocalHub, raw_client: RawClient) -> Iterator[hub.LocalHub]:
    """A Hub without faults and with an empty log; what the test opens there must be closed."""
    shared_hub.clear_log()
    with LeakCheck(leases=False):
        yield shared_hub
        shared_hub.clear_faults()


@pytest.fixture
def buckets(server: hub.LocalHub, raw_client: RawClient) -> Buckets:
    """A new bucket of it."""
    return Buckets(server, raw_client)
