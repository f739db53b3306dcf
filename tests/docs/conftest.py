"""Servers in the places that the pages name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tieredkv.testing import hub
from tieredkv.testing.valkey import ValkeyCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(replicas_per_primary=0) as running:
        yield running


@pytest.fixture(scope="session")
def bucket_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hub.LocalHub]:
    # The clients read this when they are imported: nothing may touch the user's home.
    if "HF_XET_CACHE" not in os.environ:
        home = tmp_path_factory.mktemp("hf")
        os.environ.update(
            HF_HOME=str(home),
            HF_XET_CACHE=str(home / "xet"),
            HF_HUB_DISABLE_TELEMETRY="1",
            RUST_LOG="off",
        )
    with hub.start(process=True) as running:
        yield running
