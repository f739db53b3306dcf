"""When a tier is written: with the put, when L1 evicts, at the second hit, never."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import L1Config, PutStatus, TieredStore, WriteThrough
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB, WriteOn
from tieredkv.results import DeleteStatus
from tieredkv.tiers import memory

pytestmark = pytest.mark.anyio

OBJECT = 500 * KiB  # eight of them fill 4 MiB


def late(path: Path, write_on: WriteOn) -> StoppableDisk:
    return StoppableDisk(path / "late", name="late", write_on=write_on)


@pytest.mark.parametrize("write_on", ["evict", "second_hit", "never"])
async def test_a_put_passes_such_a_tier_over_and_needs_no_answer_from_it(
    tmp_path: Path, write_on: WriteOn
) -> None:
    disk = late(tmp_path, write_on)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=WriteThrough(require="all")) as store:
        result = await store.put("key", b"bytes")
        assert result.ok
        outcome = result.tiers["late"]
        assert (outcome.status, outcome.reason) == (PutStatus.SKIPPED, write_on)
        assert (await store.flush()).ok
        assert not disk.writes


async def test_an_evicted_value_is_written_and_read_from_there(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    async with TieredStore(l1="4MiB", l2=[disk], max_pending="4MiB") as store:
        for n in range(24):
            assert (await store.put(f"key-{n}", bytes([n]) * OBJECT)).ok
            await store.flush()
        assert len(disk.writes) >= 16
        assert store.stats().l1.used_bytes <= 4 * MiB
        for n in range(24):
            assert await store.get_bytes(f"key-{n}") == bytes([n]) * OBJECT
            await store.flush()
        assert ("write", "lost") not in store.stats().tiers["late"].outcomes


async def test_what_came_from_the_tier_is_not_written_there_again(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    async with TieredStore(l1="4MiB", l2=[disk], max_pending="4MiB") as store:
        for n in range(16):
            await store.put(f"key-{n}", bytes(OBJECT))
            await store.flush()
        for _ in range(2):
            for n in range(16):
                assert await store.exists(f"key-{n}")
                lease = await store.get(f"key-{n}")
                assert lease is not None
                lease.release()
                await store.flush()
        assert len(disk.writes) == len(set(disk.writes)) == 16


async def test_until_it_is_written_an_evicted_value_is_read_from_memory(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    l1 = L1Config(capacity="4MiB", eviction_policy="lru")
    async with TieredStore(l1=l1, l2=[disk]) as store:
        with disk.stopped():
            for n in range(7):
                await store.put(f"key-{n}", bytes([n]) * OBJECT)
            await disk.entered()
            assert inside(store).l1.peek("key-0") is None
            assert (await store.stat("key-0")) is not None
            assert await store.get_bytes("key-0") == bytes(OBJECT)
            assert not disk.reads
        await store.flush()
        assert disk.writes[0] == "key-0"


async def test_evictions_beyond_what_may_be_pending_are_lost_and_counted(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    async with TieredStore(l1="4MiB", l2=[disk], max_pending=2 * OBJECT) as store:
        with disk.stopped():
            for n in range(30):
                result = await store.put(f"key-{n}", bytes(OBJECT))
                assert result.tiers["l1"].status is PutStatus.STORED
                assert store.stats().pending_bytes <= 2 * OBJECT
        await store.flush()
        written, lost = len(disk.writes), store.stats().tiers["late"].outcomes["write", "lost"]
        assert written == 2
        assert written + lost + store.stats().l1.objects == 30
        assert store.stats().l1.evicted == written + lost


async def test_a_put_waits_for_memory_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_WRITE_WAIT_S", 60)
    monkeypatch.setattr(memory, "_MEMORY_WAIT_S", 60)
    disk = late(tmp_path, "evict")
    l1 = L1Config(capacity="4MiB", trigger_watermark=1.0)
    async with TieredStore(l1=l1, l2=[disk], max_pending="4MiB") as store:
        for n in range(8):
            await store.put(f"key-{n}", bytes(OBJECT))
        assert not disk.writes
        async with anyio.create_task_group() as tasks:
            with disk.stopped():

                async def put() -> None:
                    result = await store.put("one-more", bytes(OBJECT))
                    assert result.tiers["l1"].status is PutStatus.STORED

                tasks.start_soon(put)
                await disk.entered()
                assert store.stats().l1.overflow_used_bytes == 0
                assert len(disk.writes) == 1  # no more than it needs


async def test_a_delete_takes_an_evicted_value_with_it(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    l1 = L1Config(capacity="4MiB", eviction_policy="lru")
    async with TieredStore(l1=l1, l2=[disk]) as store:
        async with anyio.create_task_group() as tasks:
            with disk.stopped():
                for n in range(7):
                    await store.put(f"key-{n}", bytes(OBJECT))
                await disk.entered()
                tasks.start_soon(store.delete, "key-0")
                await anyio.wait_all_tasks_blocked()
                assert await store.get("key-0") is None
        assert await store.get("key-0") is None
        assert not disk.file_of("key-0").exists()


@pytest.mark.parametrize("write_on", ["evict", "second_hit"])
async def test_an_older_value_there_is_not_read_after_a_put(
    tmp_path: Path, write_on: WriteOn
) -> None:
    disk = late(tmp_path, write_on)
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        await store.put("key", b"old")
        for _ in range(2):
            await store.get_bytes("key")
        inside(store).l1.arena.drain()
        inside(store).l1._evict(1, "room", in_part=True)
        await store.flush()
        assert disk.writes == ["key"]
        assert await store.get_bytes("key") == b"old"
        await store.put("key", b"new")
        await store.clear()
        assert await store.get_bytes("key") is None


async def test_the_second_hit_sends_a_value_on(tmp_path: Path) -> None:
    disk = late(tmp_path, "second_hit")
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        await store.put("key", b"bytes")
        assert await store.get_bytes("key") == b"bytes"
        await store.flush()
        assert not disk.writes
        assert await store.get_bytes("key") == b"bytes"
        await store.flush()
        for _ in range(4):
            with await store.get_many(["key"]) as results:
                assert results[0].tier == "l1"
        await store.flush()
        assert disk.writes == ["key"]
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"bytes"


async def test_a_second_hit_that_finds_the_tier_busy_is_followed_by_another(
    tmp_path: Path,
) -> None:
    disk = late(tmp_path, "second_hit")
    async with TieredStore(l1="4MiB", l2=[disk], max_pending=4 * KiB) as store:
        await store.put_many([("a", bytes(4 * KiB)), ("b", bytes(4 * KiB))])
        with disk.stopped():
            for key in ("a", "b"):
                for _ in range(2):
                    await store.get_bytes(key)
        await store.flush()
        assert disk.writes == ["a"]
        assert store.stats().tiers["late"].outcomes["write", "lost"] == 1
        await store.get_bytes("b")
        await store.flush()
        assert disk.writes == ["a", "b"]


async def test_a_tier_that_is_never_written_is_read_and_deleted_from(tmp_path: Path) -> None:
    async with TieredStore(l1="4MiB", l2=[DiskBackend(tmp_path / "late")]) as store:
        await store.put("key", b"bytes")
    disk = late(tmp_path, "never")
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        assert await store.get_bytes("key") == b"bytes"
        for _ in range(3):
            await store.put("other", b"bytes")
            await store.get_bytes("other")
        assert not disk.writes
        assert (await store.delete("key")).tiers["late"].status is DeleteStatus.DELETED


async def test_a_value_that_l1_cannot_take_leaves_it_at_once(tmp_path: Path) -> None:
    disk = late(tmp_path, "evict")
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        result = await store.put("large", bytes(6 * MiB))
        assert result.ok
        assert result.tiers["late"].status is PutStatus.STORED


async def test_a_tier_added_later_takes_its_part(tmp_path: Path) -> None:
    disk = late(tmp_path, "second_hit")
    async with TieredStore(l1="4MiB") as store:
        await store.put("key", b"bytes")
        await store.add_backend(disk)
        for _ in range(2):
            await store.get_bytes("key")
        await store.flush()
        assert disk.writes == ["key"]
