"""A value whose writes are pending is what every call gets, also when L1 does not hold it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import GetStatus, L1Config, PutStatus, TieredStore, ValueInfo, WriteThrough
from tieredkv.config import KiB
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio

OLD, NEW = b"old", b"n" * (2 * 1024 * KiB)


@pytest.fixture
async def store(disk: StoppableDisk, anyio_backend: object) -> AsyncIterator[TieredStore]:
    """L1 of 1 MiB, so that `NEW` goes through the overflow, over disk with `OLD` in it."""
    l1 = L1Config(capacity="1MiB", overflow="8MiB")
    policy = WriteThrough(require="none")
    async with TieredStore(l1, [disk], write_policy=policy, max_pending="8MiB") as opened:
        await opened.put("key", OLD)
        await opened.flush()
        yield opened


async def test_every_call_sees_the_value_in_the_overflow_before_it_is_written(
    store: TieredStore, disk: StoppableDisk
) -> None:
    out = bytearray(len(NEW))
    with disk.stopped():
        result = await store.put("key", NEW)
        assert result.tiers["l1"].status is PutStatus.SKIPPED
        assert result.tiers["disk"].status is PutStatus.PENDING
        with await store.get_many(["key", "key"]) as results:
            assert [bytes(r.object) for r in results if r.object] == [NEW, NEW]
            assert results[0].tier == "l1"
        assert await store.get_into("key", out) == len(NEW)
        assert out == NEW
        assert await store.stat("key") == ValueInfo(len(NEW), "l1")
        (other,) = await store.get_many(["key"], sizes=[len(OLD)])
        assert other.status is GetStatus.REJECTED
        assert await store.get_into("key", bytearray(len(OLD))) is None
    await store.flush()
    assert disk.reads == []
    assert await store.get_bytes("key") == NEW
    assert disk.reads == ["key"]
    assert store.stats().l1.overflow_used_bytes == 0


async def test_a_value_that_l1_dropped_is_still_read_before_it_is_written(
    store: TieredStore, disk: StoppableDisk
) -> None:
    with disk.stopped():
        await store.put("key", b"new")
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"new"


async def test_a_tier_that_is_behind_does_not_answer_for_one_that_is_not(tmp_path: Path) -> None:
    near, far = (StoppableDisk(tmp_path / name, name=name) for name in ("near", "far"))
    async with TieredStore(L1Config(capacity="1MiB", overflow="8MiB"), [near, far]) as store:
        await store.put("key", OLD)
        await store.flush()
        with near.stopped():
            result = await store.put("key", NEW)
            assert result.tiers["near"].status is PutStatus.PENDING
            assert result.tiers["far"].status is PutStatus.STORED
            assert await store.get_bytes("key") == NEW
            assert near.reads == []


async def test_the_latest_of_several_pending_values_is_read(
    store: TieredStore, disk: StoppableDisk
) -> None:
    with disk.stopped():
        await store.put("key", NEW)
        await disk.entered(2)  # the old one before it
        await store.put("key", NEW[:-1])
        assert await store.get_bytes("key") == NEW[:-1]
        await store.put("key", b"newest")
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"newest"
    await store.flush()
    assert await store.get_bytes("key") == b"newest"


async def test_a_later_write_that_ends_first_does_not_uncover_an_older_value() -> None:
    slow = FaultyBackend(MemoryBackend(name="slow"))
    slow.deadline_s = 600
    later = MemoryBackend(name="later", write_on="second_hit")
    policy = WriteThrough(require="none")
    async with TieredStore("4MiB", [slow, later], write_policy=policy) as store:
        await store.put("key", OLD)
        await store.flush()
        slow.inject(Fault("write", "late"))
        await store.put("key", b"new")
        await slow.until_held()
        for _ in range(2):
            assert await store.get_bytes("key") == b"new"
        with anyio.fail_after(60):
            while inside(store).tiers[1].counts.outcomes.get(("write", "stored")) != 1:
                await anyio.sleep(0.001)
        await store.clear()
        assert await store.get_bytes("key") == b"new"
        await slow.land()


async def test_a_deleted_value_is_not_read_from_its_pending_write(
    store: TieredStore, disk: StoppableDisk
) -> None:
    got: list[bytes | None] = []

    async def delete_and_get() -> None:
        await store.delete("key")
        got.append(await store.get_bytes("key"))

    with disk.stopped():
        await store.put("key", NEW)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete_and_get)
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
    assert got == [None]


async def test_an_expired_pending_value_does_not_uncover_an_older_one(
    store: TieredStore, disk: StoppableDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = int(time.time())
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: now_s * 10**9)
    with disk.stopped():
        await store.put("key", NEW, ttl_s=50)
        now_s += 49
        assert await store.get_bytes("key") == NEW
        now_s += 1
        (result,) = await store.get_many(["key"])
        assert result.status is GetStatus.MISS
        assert await store.stat("key") is None
    assert disk.reads == []
