"""L1 memory that several want at once, and what becomes of it when the store closes."""

from __future__ import annotations

from collections import Counter

import anyio
import anyio.lowlevel
import pytest

from tests.store.inside import inside, users
from tests.store.stoppable import StoppableDisk
from tieredkv import GetStatus, L1Config, TieredStore
from tieredkv.config import KiB, MiB
from tieredkv.errors import OutOfMemoryError, StoreClosedError

pytestmark = pytest.mark.anyio


async def test_writers_who_hold_what_the_others_need_all_come_to_an_end() -> None:
    nbytes = 200 * KiB
    ended: Counter[str] = Counter()

    async with TieredStore(l1=L1Config(capacity="1MiB", overflow=0)) as store:

        async def write(number: int) -> None:
            try:
                async with store.reserve(f"{number}-a", nbytes):
                    await anyio.lowlevel.checkpoint()
                    async with store.reserve(f"{number}-b", nbytes):
                        ended["stored"] += 1
            except OutOfMemoryError:
                ended["out of memory"] += 1

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):  # five values fit
                    tasks.start_soon(write, number)
        assert ended.total() == 8
        assert ended["out of memory"]
        assert store.stats().l1.used_bytes == sum(
            inside(store).l1.arena.block_bytes(nbytes) for _ in inside(store).l1.names()
        )
        results = await store.put_many([(f"later-{number}", bytes(nbytes)) for number in range(8)])
        assert all(result.ok for result in results)


async def test_of_two_who_fill_one_key_the_last_to_end_is_read(store: TieredStore) -> None:
    async with store.reserve("key", 5) as first:
        async with store.reserve("key", 6) as second:
            first.view[:] = b"first"
            second.view[:] = b"second"
        assert await store.get_bytes("key") == b"second"
    assert await store.get_bytes("key") == b"first"
    assert users(store, "key") == 1


async def test_a_key_asked_for_twice_has_two_leases(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    one, other = (await store.get_many(["key", "key"]))[:]
    assert one.object is not None
    assert other.object is not None
    one.object.release()
    assert bytes(other.object) == b"bytes"
    other.object.release()
    assert users(store, "key") == 1


async def test_leases_stay_valid_when_the_store_closes() -> None:
    async with TieredStore(l1=1 * MiB) as store:
        await store.put("key", b"bytes")
        lease = await store.get("key")
    assert lease is not None
    assert bytes(lease) == b"bytes"
    lease.release()


async def test_what_was_reserved_when_the_store_closed_is_told_to_be_lost() -> None:
    store = TieredStore(l1=1 * MiB)
    await store.__aenter__()

    async def fill() -> None:
        async with store.reserve("key", 5) as slot:
            await store.aclose()
            slot.view[:] = b"bytes"

    with pytest.raises(StoreClosedError):
        await fill()


async def test_a_load_that_runs_when_the_store_closes_keeps_its_memory_and_its_reader_hears(
    disk: StoppableDisk,
) -> None:
    heard: list[GetStatus] = []
    store = TieredStore(l1=1 * MiB, l2=[disk])
    await store.__aenter__()
    await store.put("key", bytes(100 * KiB))
    await disk.entered()
    inside(store).l1.clear()
    l1 = inside(store).l1

    async def read() -> None:
        with await store.get_many(["key"]) as (result,):
            heard.append(result.status)

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await disk.entered()
            await store.aclose(timeout_s=0.05)
            assert l1.arena.used_bytes >= 100 * KiB, "a worker may still write there"
            disk.let_go()
    assert heard == [GetStatus.HIT]
    await disk.aclose()
    l1.clear()
    l1.arena.drain()
    assert l1.arena.used_bytes == 0
