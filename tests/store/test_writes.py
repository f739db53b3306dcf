"""Writes: acknowledged by policy, in order for each key, bounded, never lost in silence."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import FlushReport, PutResult, PutStatus, TieredStore, WriteThrough
from tieredkv.backends import WriteRequest
from tieredkv.config import KiB, MiB
from tieredkv.errors import ConfigError, TierFullError
from tieredkv.results import WriteOutcome
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio


def two_tiers(path: Path) -> tuple[StoppableDisk, StoppableDisk]:
    return StoppableDisk(path / "near", name="near"), StoppableDisk(path / "far", name="far")


async def test_any_is_met_by_the_first_tier_and_the_rest_is_pending(tmp_path: Path) -> None:
    near, far = two_tiers(tmp_path)
    async with TieredStore(l1="4MiB", l2=[near, far]) as store:
        with far.stopped():
            result = await store.put("key", b"bytes")
            assert result.ok
            assert result.tiers["near"].status is PutStatus.STORED
            assert result.tiers["far"].status is PutStatus.PENDING
            assert store.stats().pending_bytes == 5
        await store.flush()
        assert store.stats().pending_bytes == 0
        inside(store).l1.clear()
        near.file_of("key").unlink()
        lease = await store.get("key")
        assert lease is not None
        with lease:
            assert lease.tier == "far"


async def test_all_waits_for_every_tier_and_ends_at_the_first_that_fails(
    tmp_path: Path,
) -> None:
    near, far = two_tiers(tmp_path)
    policy = WriteThrough(require="all")
    async with TieredStore(l1="4MiB", l2=[near, far], write_policy=policy) as store:
        assert (await store.put("key", b"bytes")).ok
        no_space = OSError(28, "No space left on device")
        with far.stopped(), near.failing(no_space):
            result = await store.put("key", b"bytes")
        assert not result.ok
        assert result.tiers["near"].status is PutStatus.FAILED
        assert "No space left on device" in str(result.tiers["near"].error)
        assert result.tiers["far"].status is PutStatus.PENDING


async def test_all_is_not_met_by_some(tmp_path: Path) -> None:
    near, far = two_tiers(tmp_path)
    policy = WriteThrough(require="all")
    async with TieredStore(l1="4MiB", l2=[near, far], write_policy=policy) as store:
        results: list[PutResult] = []

        async def put() -> None:
            results.append(await store.put("key", b"bytes"))

        with far.failing(OSError(28, "No space left on device")):
            async with anyio.create_task_group() as tasks:
                with far.stopped():
                    tasks.start_soon(put)
                    await far.entered()
                    with anyio.fail_after(30):
                        while store.stats().tiers["near"].pending_bytes:
                            await anyio.sleep(0.001)
        statuses = {tier: str(outcome.status) for tier, outcome in results[0].tiers.items()}
        assert statuses == {"l1": "stored", "near": "stored", "far": "failed"}
        assert not results[0].ok


async def test_none_is_met_by_l1(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        with disk.stopped():
            result = await store.put("key", b"bytes")
            assert result.ok
            assert result.tiers["disk"].status is PutStatus.PENDING
    with pytest.raises(ConfigError, match="require='most' must be one of"):
        WriteThrough(require="most")  # type: ignore[arg-type]


async def test_without_l2_tiers_l1_suffices() -> None:
    async with TieredStore(l1="4MiB") as store:
        result = await store.put("key", b"bytes")
        assert result.ok
        assert list(result.tiers) == ["l1"]
        assert await store.get_bytes("key") == b"bytes"
        assert await store.get("other") is None


async def test_a_pending_value_is_never_evicted_and_an_ended_one_is_ordinary(
    tmp_path: Path,
) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy, max_pending="4MiB") as store:
        with disk.stopped():
            await store.put("pending", bytes(1 * MiB))
            await store.put("second", bytes(1 * MiB))
            for n in range(20):
                await store.put(f"other-{n}", bytes(800 * KiB))
            assert inside(store).l1.peek("pending") is not None
            assert inside(store).l1.peek("second") is not None
        await store.flush()
        for n in range(20):
            await store.put(f"more-{n}", bytes(800 * KiB))
            await store.flush()
        assert inside(store).l1.peek("pending") is None


async def test_writes_of_one_key_go_in_order_and_those_overtaken_are_skipped(
    tmp_path: Path,
) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        with disk.stopped():
            for n in range(10):
                await store.put("key", b"%d" % n)
            report = await store.flush(timeout_s=0.01)
            assert (report.pending, report.failed) == ({"disk": ("key",)}, {})
        await store.flush()
        assert disk.writes == ["key", "key"]
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"9"


async def test_a_delete_takes_its_turn_between_puts(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    async with TieredStore(l1="4MiB", l2=[disk], write_policy=policy) as store:
        for last in ("delete", "put"):
            with disk.stopped():
                async with anyio.create_task_group() as tasks:
                    await store.put("key", b"running")
                    await store.put("key", b"waiting")
                    tasks.start_soon(store.delete, "key")
                    await anyio.wait_all_tasks_blocked()
                    assert await store.get("key") is None
                    if last == "put":
                        await store.put("key", b"after")
                    disk.let_go()
            await store.flush()
            inside(store).l1.clear()
            assert await store.get_bytes("key") == (b"after" if last == "put" else None)
        assert disk.writes.count("key") == 3  # running, running, after: none of the waiting


async def test_a_tier_with_too_much_pending_is_skipped_if_others_suffice(tmp_path: Path) -> None:
    near, far = two_tiers(tmp_path)
    async with TieredStore(l1="16MiB", l2=[near, far], max_pending="2MiB") as store:
        with far.stopped():
            results = [await store.put(f"key-{n}", bytes(600 * KiB)) for n in range(4)]
            far_statuses = [result.tiers["far"].status for result in results]
            assert all(result.ok for result in results)
            assert far_statuses == [PutStatus.PENDING] + [PutStatus.SKIPPED] * 3
            assert results[1].tiers["far"].reason == "busy"
            assert store.stats().tiers["far"].outcomes["write", "busy"] == 3


async def test_a_put_waits_for_room_in_a_tier_that_it_needs(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore(l1="16MiB", l2=[disk], max_pending="1MiB") as store:
        done: list[str] = []

        async def put(key: str) -> None:
            assert (await store.put(key, bytes(600 * KiB))).ok
            done.append(key)

        with disk.stopped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, "first")
                await disk.entered()
                tasks.start_soon(put, "second")
                await anyio.wait_all_tasks_blocked()
                assert disk.writes == ["first"]
                assert store.stats().pending_bytes == 600 * KiB
                disk.let_go()
        assert done == ["first", "second"]


async def test_room_of_a_put_that_is_overtaken_goes_to_one_that_waits(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    disk.deadline_s = 600
    async with TieredStore(l1="16MiB", l2=[disk], max_pending="1MiB") as store:
        with disk.stopped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.put, "key", bytes(300 * KiB))
                await disk.entered()
                tasks.start_soon(store.put, "key", bytes(300 * KiB))  # after the first
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(store.put, "other", bytes(600 * KiB))
                await anyio.wait_all_tasks_blocked()
                assert store.stats().pending_bytes == 600 * KiB
                tasks.start_soon(store.delete, "key")
                await anyio.wait_all_tasks_blocked()
                assert store.stats().pending_bytes == 900 * KiB
                disk.let_go()
        assert await store.exists_many(["key", "other"]) == [False, True]


async def test_room_of_a_put_that_is_overtaken_goes_to_the_next_of_the_same_call(
    tmp_path: Path,
) -> None:
    disk = StoppableDisk(tmp_path)
    disk.deadline_s = 600
    async with TieredStore(l1="16MiB", l2=[disk], max_pending="1MiB") as store:
        results: list[PutResult] = []

        async def put_both() -> None:
            values = [("other", bytes(400 * KiB)), ("key", bytes(100 * KiB))]  # the last first
            results.extend(await store.put_many(values))

        with disk.stopped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.put, "key", bytes(100 * KiB))
                await disk.entered()
                tasks.start_soon(store.put, "key", bytes(500 * KiB))  # after the first
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(put_both)  # in its place
                await anyio.wait_all_tasks_blocked()
                assert store.stats().pending_bytes == 600 * KiB
                disk.let_go()
        assert [result.tiers["disk"].status for result in results] == [PutStatus.STORED] * 2


async def test_what_is_deleted_while_it_waits_for_room_in_one_tier_goes_to_none(
    tmp_path: Path,
) -> None:
    near, far = two_tiers(tmp_path)
    policy = WriteThrough(require="all")
    async with TieredStore("4MiB", [near, far], write_policy=policy, max_pending="16KiB") as store:
        results: list[PutResult] = []

        async def put() -> None:
            results.append(await store.put("key", bytes(8 * KiB)))

        async with anyio.create_task_group() as tasks:
            with far.stopped():
                tasks.start_soon(store.put, "other", bytes(8 * KiB))
                await far.entered()
                with anyio.fail_after(30):
                    while store.stats().tiers["near"].pending_bytes:
                        await anyio.sleep(0.001)
                tasks.start_soon(put)
                await anyio.wait_all_tasks_blocked()
                assert not results
                tasks.start_soon(store.delete, "key")
                await anyio.wait_all_tasks_blocked()
                assert {results[0].tiers[tier].reason for tier in ("near", "far")} == {"deleted"}
        assert near.writes == far.writes == ["other"]
        assert not await store.exists("key")


async def test_a_put_gives_up_on_a_tier_without_room_after_its_deadline(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore(l1="16MiB", l2=[disk], max_pending="1MiB") as store:
        with disk.stopped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.put, "first", bytes(600 * KiB))
                await disk.entered()
                disk.deadline_s = 0.05
                result = await store.put("second", bytes(600 * KiB))
                assert not result.ok
                assert result.tiers["disk"].reason == "busy"
                disk.let_go()


async def test_a_write_past_its_deadline_is_unknown_and_keeps_its_memory(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    disk.deadline_s = 0.05
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        with disk.stopped():
            result = await store.put("key", b"k" * (600 * KiB))
            assert result.tiers["disk"].status is PutStatus.UNKNOWN
            assert not result.ok
            inside(store).l1.clear()
            assert store.stats().blocks_held_by_views == 1
            disk.deadline_s = 5.0
            for n in range(10):
                inside(store).l1.clear()
                entry = inside(store).l1.reserve(f"other-{n}", 600 * KiB)
                assert entry is not None
                inside(store).l1.arena.writable(entry)[:] = bytes([n]) * (600 * KiB + 64)
                inside(store).l1.arena.drop(entry)
        with anyio.fail_after(30):
            while store.stats().blocks_held_by_views:
                await anyio.sleep(0.001)
        assert await store.get_bytes("key") == b"k" * (600 * KiB)  # it did land, whole


async def test_a_cancelled_put_leaves_its_writes_to_end(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        with disk.stopped():
            with anyio.move_on_after(0.05) as scope:
                await store.put("key", b"bytes")
            assert scope.cancelled_caught
            assert store.stats().pending_bytes == 5
        await store.flush()
        inside(store).l1.clear()
        assert await store.get_bytes("key") == b"bytes"
        assert store.stats().l1.used_bytes == 4096


async def test_closing_waits_for_pending_writes(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    store = TieredStore(l1="4MiB", l2=[disk], write_policy=policy)
    await store.__aenter__()
    reports = []

    async def close() -> None:
        reports.append(await store.aclose())

    with disk.stopped():
        await store.put("key", b"bytes")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            await anyio.wait_all_tasks_blocked()
            assert not reports
            disk.let_go()
    assert reports[0].ok
    assert disk.file_of("key").exists()


async def test_closing_names_what_was_not_written_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = StoppableDisk(tmp_path)
    policy = WriteThrough(require="none")
    store = TieredStore(l1="4MiB", l2=[disk], write_policy=policy)
    await store.__aenter__()
    with disk.stopped():
        await store.put_many([("a", b"1"), ("b", b"2")])
        await disk.entered()
        with caplog.at_level(logging.WARNING):
            report = await store.aclose(timeout_s=0.05)
        assert not report.ok
        assert report.pending == {"disk": ("b", "a")}
        assert "2 writes to disk unfinished: 'b', 'a'" in caplog.text
    await disk.aclose()


async def test_a_put_that_has_not_begun_when_the_store_closes_is_told(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    store = TieredStore(l1="4MiB", l2=[disk])
    await store.__aenter__()
    results: list[PutResult] = []

    async def put() -> None:
        results.append(await store.put("key", b"second"))

    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "key", b"first")
            await disk.entered()
            tasks.start_soon(put)
            await anyio.wait_all_tasks_blocked()
            await store.aclose(timeout_s=0.05)
            await anyio.wait_all_tasks_blocked()
            assert str(results[0].tiers["disk"]) == "skipped (closed)"
    await disk.aclose()
    assert disk.writes == ["key"]


async def test_a_flush_waits_for_deletes_too(anyio_backend: object) -> None:
    tier = FaultyBackend(MemoryBackend(), [Fault("delete", "late")])
    async with TieredStore("4MiB", [tier]) as store:
        reports: list[FlushReport] = []

        async def flush() -> None:
            reports.append(await store.flush())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.delete, "key")
            await tier.until_held()
            tasks.start_soon(flush)
            await anyio.wait_all_tasks_blocked()
            assert not reports
            await tier.land()
            await anyio.wait_all_tasks_blocked()
            assert reports[0].ok


async def test_a_report_names_the_latest_of_very_many_failures(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    monkeypatch.setattr("tieredkv.tiers.writer._MOST_FAILED", 2)
    full = Fault("write", "raise", times=None, error=TierFullError)
    async with TieredStore("4MiB", [FaultyBackend(MemoryBackend(), [full])]) as store:
        for key in ("a", "b", "a", "c"):
            await store.put(key, b"value")
        assert list((await store.flush()).failed["memory"]) == ["a", "c"]


async def test_a_call_to_a_tier_has_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    class Counting(MemoryBackend):
        async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
            calls.append(len(requests))
            return await super().write_many(requests)

    monkeypatch.setattr("tieredkv.tiers.writer.CALL_BYTES", 16 * KiB)
    calls: list[int] = []
    sizes = [8 * KiB, 8 * KiB - 1, 1] * 2 + [0]
    async with TieredStore("4MiB", [Counting()]) as store:
        values = [(f"key-{n}", bytes(size)) for n, size in enumerate(sizes)]
        await store.put_many(reversed(values))  # of which the last is written first
    assert sorted(calls) == [1, 3, 3]


async def test_a_bare_value_that_waited_lives_for_what_is_left_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Expiring(MemoryBackend):
        def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
            told.append(request.ttl_s)
            return super()._write(client, request)

    told: list[float | None] = []
    now_s = int(time.time())
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: now_s * 10**9)
    tier = FaultyBackend(Expiring(native_ttl=True))
    policy = WriteThrough(require="none")
    async with TieredStore(MiB, [tier], integrity="size", write_policy=policy) as store:
        for ttl_s, waits_s in ((60, 20), (60, 70)):
            tier.inject(Fault("write", "late"))
            await store.put("key", b"before")
            await tier.until_held()
            await store.put("key", b"value", ttl_s=ttl_s)
            now_s += waits_s
            await tier.land()
            await store.flush()
    assert told == [None, 40, None, 0.001]


@pytest.mark.parametrize(("limit", "calls"), [(MiB, "several"), (64 * MiB, "one")])
async def test_a_long_batch_is_written_while_the_rest_is_copied(
    limit: int, calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noting(MemoryBackend):
        async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
            written.append([request.name for request in requests])
            return await super().write_many(requests)

    monkeypatch.setattr("tieredkv.tiers.puts._SUBMIT_BYTES", limit)
    written: list[list[str]] = []
    async with TieredStore(32 * MiB, [Noting()]) as store:
        for result in await store.put_many([(f"{number}", bytes(MiB)) for number in range(6)]):
            assert result.ok
    assert sorted(name for names in written for name in names) == [f"{n}" for n in range(6)]
    assert calls == ("one" if len(written) == 1 else "several")
