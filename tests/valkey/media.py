"""The server and the Cluster with the hooks of kit and state machine, over raw connections."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from tieredkv.backends import ValkeyBackend
from tieredkv.testing.backends import BackendHooks
from tieredkv.testing.valkey import (
    NUM_SLOTS,
    RawConnection,
    ValkeyCluster,
    ValkeyServer,
    key_slot,
)


class OneServer(BackendHooks):
    connection: ClassVar[RawConnection]
    server: ClassVar[ValkeyServer]

    def make_backend(self) -> ValkeyBackend:
        return ValkeyBackend(self.server.url, num_workers=3)

    def raw_put(self, name: str, value: bytes) -> None:
        self.raw(name).command("SET", name, value)

    def raw_get(self, name: str) -> bytes | None:
        value = self.raw(name).command("GET", name)
        assert value is None or isinstance(value, bytes)
        return value

    def raw_delete(self, name: str) -> None:
        self.raw(name).command("DEL", name)

    def raw(self, name: str) -> RawConnection:
        return self.connection


class OneCluster(OneServer):
    cluster: ClassVar[ValkeyCluster]
    connections: ClassVar[dict[int, RawConnection]]

    def make_backend(self) -> ValkeyBackend:
        return ValkeyBackend(self.cluster.urls, mode="cluster", num_workers=3)

    def raw(self, name: str) -> RawConnection:
        return self.connections[key_slot(name)]


def connections_of(cluster: ValkeyCluster, stack: ExitStack) -> dict[int, RawConnection]:
    """Return a raw connection to the primary of each slot."""
    by_slot: dict[int, RawConnection] = {}
    for node in cluster.primaries():
        connection = stack.enter_context(node.connect())
        mine = node.command("CLUSTER", "MYID")
        for first, last, primary, *_ in node.command("CLUSTER", "SLOTS"):
            if primary[2] == mine:
                by_slot.update(dict.fromkeys(range(first, last + 1), connection))
    assert len(by_slot) == NUM_SLOTS
    return by_slot
