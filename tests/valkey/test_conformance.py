"""A server is a backend, standalone and as a Cluster of three primaries and three replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.valkey.media import OneCluster, OneServer, connections_of
from tieredkv.backends import ValkeyBackend
from tieredkv.testing.backends import BackendConformance
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer

pytestmark = pytest.mark.network

SIZES = (0, 1, 63, 64, 65, 4096, 262_144, 262_209, 1_048_577)


class OnServer(OneServer, BackendConformance):
    sizes = SIZES

    @pytest.fixture(autouse=True)
    def medium(self, server: ValkeyServer, request: pytest.FixtureRequest) -> Iterator[None]:
        cls = type(self)
        with server.connect() as connection:
            cls.server, cls.connection = server, connection
            yield


class TestStandalone(OnServer):
    pass


class TestWithPrefixCapacityAndOneWorker(OnServer):
    """Names stand behind a prefix; a capacity that holds all evicts nothing."""

    many = 600

    def make_backend(self) -> ValkeyBackend:
        return ValkeyBackend(self.server.url, key_prefix="kit[", capacity="1GiB", num_workers=1)

    def raw_put(self, name: str, value: bytes) -> None:
        super().raw_put(f"kit[@{name}", value)

    def raw_get(self, name: str) -> bytes | None:
        return super().raw_get(f"kit[@{name}")

    def raw_delete(self, name: str) -> None:
        super().raw_delete(f"kit[@{name}")


class TestCluster(OneCluster, BackendConformance):
    sizes = SIZES
    many = 600

    @pytest.fixture(autouse=True)
    def medium(self, cluster: ValkeyCluster) -> Iterator[None]:
        cls = type(self)
        with ExitStack() as stack:
            cls.cluster = cluster
            cls.connections = connections_of(cluster, stack)
            yield
