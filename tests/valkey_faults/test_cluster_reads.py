"""Reads from replicas, and what the nodes of a Cluster answer while a slot moves."""

from __future__ import annotations

import anyio
import pytest

from tests.valkey_faults.calls import backend_at, opened
from tieredkv.clients.glide import ClientError, Kind, OwnedClient
from tieredkv.testing.backends.requests import PATIENCE_S
from tieredkv.testing.load import Load
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer, key_slot

pytestmark = pytest.mark.anyio


async def test_replicas_are_read_where_they_are_preferred(
    cluster: ValkeyCluster, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = [node for node in cluster.nodes if node not in cluster.primaries()]
    async with opened(cluster.urls, mode="cluster", read_from="prefer_replica") as backend:
        assert "may miss what was just written" in caplog.text
        load = Load(backend)
        assert await load.write(load.names) == load.names
        for node in cluster.nodes:
            node.command("CONFIG", "RESETSTAT")
        with anyio.fail_after(PATIENCE_S):
            while await load.read(load.names) != load.names:
                pass  # not all are there yet
    assert load.wrong == []
    assert any(map(_reads, replicas))
    assert not any(map(_reads, cluster.primaries()))


def _reads(node: ValkeyServer) -> bool:
    return "cmdstat_get" in node.info("commandstats")


async def test_keys_on_both_sides_of_a_moving_slot_are_to_be_tried_again(
    cluster: ValkeyCluster,
) -> None:
    stays, goes = b"{both}-stays", b"{both}-goes"
    source = cluster.primary_of(stays)
    target = next(node for node in cluster.primaries() if node is not source)
    for key in (stays, goes):
        source.command("SET", key, b"v")
    client = OwnedClient(backend_at(source.url)._settings)
    try:
        with (
            cluster.half_moved_slot(key_slot(stays), target, [goes]),
            pytest.raises(ClientError) as caught,
        ):
            client.get_many_into([stays, goes], [memoryview(bytearray(1)) for _ in range(2)])
    finally:
        client.close()
    assert caught.value.kind is Kind.TRY_AGAIN, caught.value
