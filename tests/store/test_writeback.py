"""Writing back: acknowledged after L1, bounded, tried again, and told of where it failed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import PutStatus, TieredStore, WriteBack
from tieredkv.config import KiB, MiB
from tieredkv.errors import ConfigError, TierError, TierFullError
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers import writeback

pytestmark = pytest.mark.anyio

OBJECT = 500 * KiB  # eight of them fill 4 MiB


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(writeback, "_LONGEST_PAUSE_S", 0.001)


@pytest.fixture
async def faulty(anyio_backend: object) -> FaultyBackend:
    return FaultyBackend(MemoryBackend())


@pytest.fixture
async def back(faulty: FaultyBackend, anyio_backend: object) -> AsyncIterator[TieredStore]:
    async with TieredStore(l1="4MiB", l2=[faulty], write_policy=WriteBack()) as store:
        yield store


def stored(faulty: FaultyBackend) -> list[str]:
    assert isinstance(faulty.inner, MemoryBackend)
    return faulty.inner.medium.names()


async def test_a_put_is_acknowledged_by_l1_and_the_value_follows(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=WriteBack()) as store:
        with disk.stopped():
            result = await store.put("key", b"bytes")
            assert result.ok
            assert result.tiers["l1"].status is PutStatus.STORED
            assert result.tiers["disk"].status is PutStatus.PENDING
            await disk.entered()  # without a flush
        assert (await store.flush()).ok
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"bytes"


async def test_of_the_values_of_a_key_that_wait_only_the_last_is_written(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(linger_s=3600)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        for n in range(10):
            await store.put("key", b"%d" % n)
        assert store.stats().pending_bytes == 1
        await store.flush()  # which nothing outlingers
        assert disk.writes == ["key"]
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"9"


async def test_a_slow_tier_holds_puts_up_and_loses_none(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path, num_workers=1)
    disk.deadline_s = 600
    policy = WriteBack(max_dirty=2 * OBJECT, linger_s=0)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        done: list[str] = []

        async def put_all() -> None:
            for n in range(40):
                assert (await store.put(f"key-{n}", bytes([n]) * OBJECT)).ok
                done.append(f"key-{n}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put_all)
            with disk.one_by_one():
                for n in range(40):
                    await disk.entered()  # the writer is at its n-th write, and stays there
                    await anyio.wait_all_tasks_blocked()
                    stats = store.stats()
                    assert stats.pending_bytes <= 2 * OBJECT
                    assert stats.l1.used_bytes <= stats.l1.capacity_bytes
                    assert len(done) <= n + 2
                    disk.let_one_go()
        assert (await store.flush()).ok
        assert sorted(disk.writes) == sorted(done)
        inside(store).l1.clear()
        for n, key in enumerate(done):
            assert await store.get_bytes(key) == bytes([n]) * OBJECT


async def test_a_dirty_value_is_not_evicted(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    disk.deadline_s = 600
    policy = WriteBack(max_dirty=2 * OBJECT, linger_s=0)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        with disk.stopped():
            await store.put("dirty-1", bytes(OBJECT))
            await store.put("dirty-2", bytes(OBJECT))
            await disk.entered(2)
            disk.deadline_s = 0.01
            results = [await store.put(f"other-{n}", bytes(OBJECT)) for n in range(12)]
            assert all(r.tiers["disk"].reason == "busy" for r in results)
            assert not any(r.ok for r in results)  # L1 has them, but no tier will
            assert store.stats().tiers["disk"].outcomes["write", "busy"] == 12
            assert inside(store).l1.peek("dirty-1") is not None
            assert inside(store).l1.peek("dirty-2") is not None
        assert (await store.flush()).ok


async def test_a_write_without_an_answer_is_tried_again(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.inject(Fault("write", "raise", times=2))  # below what the breaker takes
    await back.put("key", b"bytes")
    assert (await back.flush()).ok
    assert stored(faulty) == ["key"]
    assert back.stats().tiers["memory"].outcomes["write", "retried"] == 2


async def test_after_some_tries_it_is_reported_by_key_once_and_the_value_is_ordinary(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.inject(Fault("write", "raise", times=None))
    await back.put_many([("a", b"1"), ("b", b"2")])
    report = await back.flush()
    assert not report.ok
    assert not report.pending
    assert {str(o.status) for o in report.failed["memory"].values()} == {"unknown"}
    assert report.failed["memory"].keys() == {"a", "b"}
    assert back.stats().tiers["memory"].outcomes["write", "retried"] == 2 * 7
    assert (await back.flush()).ok
    assert back.stats().pending_bytes == 0
    for n in range(20):
        await back.put(f"other-{n}", bytes(OBJECT))
    assert inside(back).l1.peek("a") is None


@pytest.mark.parametrize("error", [TierFullError, TierError])
async def test_a_refusal_is_final(
    back: TieredStore, faulty: FaultyBackend, error: type[TierError]
) -> None:
    faulty.inject(Fault("write", "raise", error=error))
    await back.put("key", b"bytes")
    report = await back.flush()
    assert report.failed["memory"]["key"].status is PutStatus.FAILED
    assert ("write", "retried") not in back.stats().tiers["memory"].outcomes


async def test_a_failure_that_a_later_put_or_delete_mends_is_not_reported(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.inject(Fault("write", "raise", error=TierFullError, times=2))
    await back.put_many([("a", b"1"), ("b", b"2")])
    with anyio.fail_after(30):
        while back.stats().pending_bytes:
            await anyio.sleep(0.001)
    await back.put("a", b"1")
    await back.delete("b")
    assert (await back.flush()).ok


async def test_a_tier_that_fails_is_not_waited_for(
    back: TieredStore, faulty: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writeback, "_FIRST_PAUSE_S", 3600)
    monkeypatch.setattr(writeback, "_LONGEST_PAUSE_S", 3600)
    faulty.deadline_s = 600
    faulty.inject(Fault("write", "raise", times=None))
    reached = [await back.put(f"key-{n}", bytes(OBJECT)) for n in range(2)]
    assert all(result.ok for result in reached)
    with anyio.fail_after(30):
        while not back.stats().tiers["memory"].outcomes.get(("write", "retried")):
            await anyio.sleep(0.001)
        result = await back.put("one-more", bytes(OBJECT))
    assert result.tiers["memory"].reason == "busy"
    report = await back.aclose(timeout_s=0.01)
    assert report.pending["memory"] == ("key-0", "key-1")


@pytest.mark.parametrize("call", ["put", "delete"])
async def test_what_waits_for_room_is_overtaken_by_a_later_call(tmp_path: Path, call: str) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(max_dirty=2 * OBJECT, linger_s=0)
    async with TieredStore(l1="8MiB", l2=[disk], write_policy=policy) as store:
        results: list[Any] = []

        async def put(value: bytes) -> None:
            results.append(await store.put("key", value))

        with disk.stopped():
            await store.put("other", bytes(OBJECT))
            await disk.entered()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, b"o" * 2 * OBJECT)
                await anyio.wait_all_tasks_blocked()
                assert not results
                if call == "put":
                    assert (await store.put("key", b"new")).ok
                else:
                    tasks.start_soon(store.delete, "key")
                await anyio.wait_all_tasks_blocked()
                reason = "superseded" if call == "put" else "deleted"
                assert results[0].tiers["disk"].reason == reason
        assert (await store.flush()).ok
        inside(store).l1.clear()
        assert await store.get_bytes("key") == (b"new" if call == "put" else None)
        assert disk.writes == (["other", "key"] if call == "put" else ["other"])


async def test_a_dirty_value_that_is_deleted_is_not_written(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(linger_s=3600)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        await store.put("key", b"bytes")
        await store.delete("key")
        assert (await store.flush()).ok
        assert not disk.writes
        assert await store.get("key") is None


async def test_a_late_try_does_not_bring_an_old_value_back(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.deadline_s = 0.02
    faulty.inject(Fault("write", "late"))
    await back.put("key", b"old")
    assert (await back.flush()).ok  # by the second try
    faulty.deadline_s = 5.0
    await back.put("key", b"new")
    assert (await back.flush()).ok
    await faulty.land()
    inside(back).l1.clear()
    assert await back.get_bytes("key") in (None, b"new")
    assert await back.get_bytes("key") != b"old"


async def test_readers_of_a_value_whose_write_hangs_get_it_at_once(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.inject(Fault("write", "hang"))
    await back.put("key", b"bytes")
    await faulty.until_held()
    inside(back).l1.clear()
    values: list[bytes | None] = []

    async def read() -> None:
        values.append(await back.get_bytes("key"))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(read)
    assert values == [b"bytes"] * 20
    assert faulty.num_held == 1
    report = await back.aclose(timeout_s=0.01)
    assert report.pending == {"memory": ("key",)}


async def test_a_value_that_l1_cannot_take_is_written_through(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(linger_s=3600)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        result = await store.put("large", bytes(6 * MiB))
        assert result.ok
        assert result.tiers["disk"].status is PutStatus.STORED
        assert store.stats().l1.overflow_used_bytes == 0


async def test_leaving_the_store_at_once_writes_what_is_dirty(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(linger_s=3600)
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        await store.put_many([(f"key-{n}", b"bytes") for n in range(20)])
    assert sorted(disk.writes) == sorted(f"key-{n}" for n in range(20))


async def test_a_cancelled_program_writes_what_is_dirty(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteBack(linger_s=3600)
    with anyio.CancelScope() as scope:
        async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
            await store.put("key", b"bytes")
            scope.cancel()
            await anyio.sleep_forever()
    assert disk.writes == ["key"]


async def test_closing_names_what_it_has_not_written_and_writes_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = StoppableDisk(tmp_path, num_workers=1)
    policy = WriteBack(workers=1, linger_s=0, max_dirty="2MiB")
    store = TieredStore(l1="4MiB", l2=[disk], write_policy=policy)
    await store.__aenter__()
    with disk.stopped():
        await store.put("running", bytes(OBJECT))
        await disk.entered()
        await store.put("waiting", bytes(OBJECT))
        with caplog.at_level(logging.WARNING):
            report = await store.aclose(timeout_s=0.05)
        assert report.pending == {"disk": ("running", "waiting")}
        assert "2 writes to disk unfinished: 'running', 'waiting'" in caplog.text
    await disk.aclose()
    assert disk.writes == ["running"]


async def test_what_ends_without_an_answer_as_the_store_closes_is_not_tried_again(
    back: TieredStore, faulty: FaultyBackend
) -> None:
    faulty.inject(Fault("write", "hang"))
    await back.put("key", b"bytes")
    await faulty.until_held()
    parts = inside(back)
    await back.aclose(timeout_s=0.01)
    with anyio.fail_after(60):
        while parts._detached.pending:
            await anyio.sleep(0.001)
    outcomes = parts.tiers[0].counts.outcomes
    assert outcomes["write", "unknown"] == 1
    assert ("write", "retried") not in outcomes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WriteBack(workers=0), "workers=0 is outside 1"),
        (lambda: WriteBack(linger_s=-1), "linger_s=-1 is outside 0"),
        (lambda: WriteBack(max_dirty="4G"), "max_dirty='4G' has two readings"),
        (
            lambda: TieredStore("4MiB", write_policy=WriteBack(max_dirty=8 * MiB)),
            "max_dirty=8388608 is outside 0..4194304",
        ),
    ],
)
def test_a_wrong_setting_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
