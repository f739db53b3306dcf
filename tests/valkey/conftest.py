"""One server and one Cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tieredkv.backends import ValkeyBackend
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        warm_up(server.url)
        yield server


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster() as cluster:
        warm_up(cluster.nodes[0].url, mode="cluster")
        yield cluster


def warm_up(url: str, mode: Literal["standalone", "cluster"] = "standalone") -> None:
    """Have the vendor make what it keeps for the whole process."""
    backend = ValkeyBackend(url, mode=mode)
    backend._disconnect(backend._connect())


@pytest.fixture
def server(shared_server: ValkeyServer) -> ValkeyServer:
    """Return a server without values."""
    shared_server.command("FLUSHALL")
    return shared_server


@pytest.fixture
def cluster(shared_cluster: ValkeyCluster) -> ValkeyCluster:
    """Return a healthy Cluster without values."""
    for node in shared_cluster.primaries():
        node.command("FLUSHALL")
    return shared_cluster
