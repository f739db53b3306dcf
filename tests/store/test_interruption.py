"""Every call, cancelled at each place where it waits: nothing is lost, left behind or mixed up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.interruption import interrupted, ways
from tests.store.inside import inside
from tieredkv import L1Config, TieredStore
from tieredkv.config import KiB, WriteBack, WritePolicy, WriteThrough
from tieredkv.testing.content import content, gist
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio

Call: TypeAlias = Callable[[TieredStore], Coroutine[Any, Any, object]]

SIZES: Final = {"one": 3000, "two": 30_000, "three": 20_000, "huge": 60_000}
KEYS: Final = tuple(SIZES)
VALUES: Final = {key: content(key, size) for key, size in SIZES.items()}
MOST_WAITS: Final = 1000


async def put_many(store: TieredStore) -> None:
    await store.put_many(list(VALUES.items()) * 2)


async def reserve(store: TieredStore) -> None:
    async with store.reserve("one", SIZES["one"]) as slot:
        with slot.view as view:
            view[:] = VALUES["one"]
        await checkpoint()


async def get_many(store: TieredStore) -> None:
    with await store.get_many([*KEYS, "absent"]) as results:
        for key, result in zip(KEYS, results, strict=False):
            if result.object is not None:
                assert gist(bytes(result.object)) == gist(VALUES[key])
        await checkpoint()


async def get_into_many(store: TieredStore) -> None:
    outs = [bytearray(size) for size in SIZES.values()]
    await store.get_into_many(zip(KEYS, outs, strict=True))


async def look_up(store: TieredStore) -> None:
    async with store.lookup([*KEYS, "absent"]) as found:
        with await found.load():
            await checkpoint()


async def list_keys(store: TieredStore) -> None:
    async with aclosing(store.keys("lower")) as keys:
        async for _ in keys:
            await checkpoint()


async def change_tiers(store: TieredStore) -> None:
    third = MemoryBackend(name="third")
    try:
        await store.add_backend(third)
        await store.put("one", VALUES["one"])
    finally:
        with anyio.CancelScope(shield=True):
            if third.name in store.stats().tiers:
                await store.remove_backend(third.name)
            assert third._workers.num_clients == 0


async def remove_tier(store: TieredStore) -> None:
    await store.put("one", VALUES["one"])
    await store.remove_backend("upper")


CALLS: Final[dict[str, Call]] = {
    "put": lambda store: store.put("one", VALUES["one"]),
    "put_many": put_many,
    "reserve": reserve,
    "get": lambda store: store.get_bytes("two"),
    "get_many": get_many,
    "get_into_many": get_into_many,
    "stat_many": lambda store: store.stat_many(KEYS),
    "look_up": look_up,
    "prefetch": lambda store: store.prefetch(KEYS, policy="full"),
    "list_keys": list_keys,
    "delete_many": lambda store: store.delete_many([*KEYS, "absent"]),
    "clear": lambda store: store.clear(tiers=("l1", "lower")),
    "flush": lambda store: store.flush(),
    "status": lambda store: store.status(),
    "change_tiers": change_tiers,
    "remove_tier": remove_tier,
}


@asynccontextmanager
async def small_store(policy: WritePolicy) -> AsyncIterator[TieredStore]:
    upper, lower = MemoryBackend(name="upper"), MemoryBackend(name="lower", scatter=False)
    config = L1Config(capacity=96 * KiB, overflow=128 * KiB)
    try:
        most = 40 * KiB if isinstance(policy, WriteThrough) else None
        store = TieredStore(config, [upper, lower], write_policy=policy, max_pending=most)
        async with store:
            yield store
    finally:
        assert (upper._workers.num_clients, lower._workers.num_clients) == (0, 0)


async def comes_to_rest(store: TieredStore) -> None:
    """Check that a store holds what it holds for a reason."""
    parts = inside(store)
    assert not (await store.flush()).pending
    with anyio.fail_after(30):
        while parts._detached.pending:
            await checkpoint()
    stats = store.stats()
    assert (stats.loads_in_flight, stats.pending_bytes, stats.blocks_held_by_views) == (0, 0, 0)
    assert stats.l1.leases == 0
    assert list(parts.pins) == []
    assert (parts._inflight._changing, parts.pins._deleting) == ({}, {})
    assert (parts._writes._latest, parts._writes._unsubmitted) == ({}, {})
    assert all(writer.urgent == 0 for writer in parts._writes.writers)
    assert parts._writes.leaving_bytes == 0
    parts.l1.clear()
    stats = store.stats()
    assert (stats.l1.used_bytes, stats.l1.overflow_used_bytes) == (0, 0)


async def works(store: TieredStore) -> None:
    assert (await store.put("one", VALUES["one"])).ok
    inside(store).l1.clear()
    assert gist(await store.get_bytes("one") or b"") == gist(VALUES["one"])
    assert (await store.delete("one")).status.value == "deleted"
    assert not await store.exists("one")


@pytest.fixture
def _little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieredkv.tiers.puts._SUBMIT_BYTES", 10 * KiB)


@pytest.mark.usefixtures("_little_at_once")
@pytest.mark.parametrize(
    "policy",
    [WriteThrough(require="all"), WriteBack(linger_s=0.0, max_dirty=40 * KiB)],
    ids=["through", "back"],
)
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_may_be_cancelled_wherever_it_waits(name: str, policy: WritePolicy) -> None:
    for way in ways():
        for place in range(way == "woken", MOST_WAITS):
            async with small_store(policy) as store:
                await store.put_many(VALUES.items())
                await store.flush()
                inside(store).l1.clear()
                came_so_far = await interrupted(CALLS[name](store), place, way)
                await comes_to_rest(store)
                await works(store)
            if not came_so_far:
                break
