"""What a cluster can suffer while values are written and read, and that all is well afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import anyio
import pytest

from tests.valkey_faults.calls import backend_at, opened
from tieredkv.clients.glide import ClientError, Kind, OwnedClient
from tieredkv.testing.backends.requests import PATIENCE_S
from tieredkv.testing.load import Load, under_load
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer, key_slot

pytestmark = pytest.mark.anyio


def _other_primary(cluster: ValkeyCluster, node: ValkeyServer) -> ValkeyServer:
    return next(primary for primary in cluster.primaries() if primary is not node)


async def test_a_killed_primary_is_replaced_by_its_replica(cluster: ValkeyCluster) -> None:
    async with opened(cluster.urls, mode="cluster") as backend, under_load(backend) as load:
        cluster.primary_of(load.names[0]).kill()
        await load.failing()
        await load.recovered()


async def test_a_primary_that_stands_still_is_replaced_by_its_replica(
    cluster: ValkeyCluster,
) -> None:
    async with opened(cluster.urls, mode="cluster") as backend, under_load(backend) as load:
        cluster.primary_of(load.names[0]).pause()
        await load.failing()
        await load.recovered()


async def test_an_address_that_stands_still_does_not_hold_up_connecting(
    cluster: ValkeyCluster,
) -> None:
    cluster.nodes[0].pause()
    with anyio.fail_after(PATIENCE_S):
        async with opened(cluster.urls, mode="cluster", connect_timeout_s=5 * PATIENCE_S):
            pass


async def test_a_cluster_that_stands_still_has_no_memory_to_tell_of(
    cluster: ValkeyCluster,
) -> None:
    async with opened(cluster.urls, mode="cluster") as backend:
        for node in cluster.nodes:
            node.pause()
        with anyio.fail_after(PATIENCE_S):
            status = await backend.status()
        for node in cluster.nodes:
            node.resume()
    assert not status.is_healthy
    assert status.details["node_memory"] == {}


async def test_slots_that_move_lose_nothing(cluster: ValkeyCluster) -> None:
    async with (
        opened(cluster.urls, mode="cluster", request_timeout_s=PATIENCE_S) as backend,
        under_load(backend) as load,
    ):
        for name in load.names[:4]:
            target = _other_primary(cluster, cluster.primary_of(name))
            await anyio.to_thread.run_sync(
                cluster.move_slots, key_slot(name), key_slot(name), target
            )
        load.stop()
        assert await load.read(load.names) == load.names
    assert load.failures == {}


async def test_a_half_moved_slot_is_served(cluster: ValkeyCluster) -> None:
    async with opened(cluster.urls, mode="cluster") as backend:
        load = Load(backend, names=[f"{{half}}-{number}" for number in range(24)])
        assert await load.write(load.names) == load.names
        source = cluster.primary_of("{half}")
        moved = load.names[::2]
        with cluster.half_moved_slot(key_slot("{half}"), _other_primary(cluster, source), moved):
            assert await load.read(load.names) == load.names
            assert await load.write(load.names) == load.names
        assert await load.read(load.names) == load.names
    assert load.wrong == []


@pytest.fixture(scope="module")
def _module_bare_cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(
        replicas_per_primary=0, options={"cluster-require-full-coverage": "no"}
    ) as running:
        yield running


@pytest.fixture
def bare_cluster(_module_bare_cluster: ValkeyCluster) -> Iterator[ValkeyCluster]:
    """A cluster without replicas, which goes on serving what its living nodes have."""
    yield _module_bare_cluster
    _module_bare_cluster.repair()


def test_a_node_whose_cluster_is_down_says_so(bare_cluster: ValkeyCluster) -> None:
    """Asked by itself: the vendor's client for Clusters tries again until its time is up."""
    dead, alive, _ = bare_cluster.nodes
    alive.command("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    key = next(f"n{n}" for n in count() if bare_cluster.primary_of(f"n{n}") is alive).encode()
    client = OwnedClient(backend_at(alive.url)._settings)
    try:
        dead.kill()
        bare_cluster.wait_for(lambda: b"cluster_state:fail" in alive.command("CLUSTER", "INFO"))
        with pytest.raises(ClientError) as caught:
            client.get_into(key, memoryview(bytearray(1)))
    finally:
        alive.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
        client.close()
    assert caught.value.kind is Kind.CLUSTER_DOWN, caught.value


async def test_a_dead_node_is_nothing_to_the_others(bare_cluster: ValkeyCluster) -> None:
    async with opened(bare_cluster.urls, mode="cluster") as backend:
        load = Load(backend)
        await load.recovered()
        dead = bare_cluster.primary_of(load.names[0])
        healthy = [name for name in load.names if bare_cluster.primary_of(name) is not dead]
        dead.kill()
        with anyio.fail_after(PATIENCE_S):
            while not (
                await load.read(load.names) == healthy and await load.write(load.names) == healthy
            ):
                pass
    assert load.wrong == []
