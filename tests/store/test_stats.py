"""What `stats` counts, and under which names."""

from __future__ import annotations

import threading

import anyio
import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import L1Config, TieredStore
from tieredkv.config import KiB, MiB
from tieredkv.errors import TierUnavailableError

pytestmark = pytest.mark.anyio

ROOM = 64  # of a block, behind the payload
BLOCK = 4 * KiB


async def test_each_operation_and_outcome_has_its_keys_bytes_and_latencies(
    store: TieredStore,
) -> None:
    await store.put_many([(name, bytes(100)) for name in "abc"])
    await store.clear()
    with await store.get_many("abcde", sizes=[100] * 5) as results:
        assert sum(result.object is not None for result in results) == 3
    await store.delete("a")
    disk = store.stats().tiers["disk"]
    assert disk.outcomes["write", "stored"] == 3
    assert (disk.outcomes["read", "hit"], disk.outcomes["read", "miss"]) == (3, 2)
    assert disk.outcomes["delete", "deleted"] == 1
    assert disk.nbytes == {"write": 3 * 164, "read": 3 * 164}
    by_outcome = {cell: histogram.count for cell, histogram in disk.latency_by_outcome.items()}
    assert by_outcome == {cell: disk.outcomes[cell] for cell in by_outcome}
    assert {operation: of.count for operation, of in disk.latency.items()} == {
        "write": 3,
        "read": 5,
        "delete": 1,
    }


async def test_a_snapshot_is_detached(store: TieredStore) -> None:
    await store.put("a", b"1")
    before = store.stats()
    await store.put("b", b"1")
    await store.clear()
    assert before.tiers["disk"].outcomes == {("write", "stored"): 1}
    assert before.tiers["disk"].latency["write"].count == 1
    assert before.l1.removed == {}
    assert store.stats().l1.removed == {"cleared": 2}


async def test_why_values_leave_l1(anyio_backend: object) -> None:
    l1 = L1Config(capacity=8 * BLOCK, trigger_watermark=1.0, eviction_ratio=0.0)
    async with TieredStore(l1) as store:
        for number in range(8):
            await store.put(f"{number}", bytes(BLOCK - ROOM))
        await store.put("room", bytes(2 * BLOCK - ROOM))
        await store.put("room", bytes(BLOCK - ROOM))
        await store.delete("room")
        await store.put("expired", b"", ttl_s=0.001)
        while await store.get_bytes("expired") is not None:
            await anyio.sleep(0.001)
        left = store.stats().l1.objects
        await store.clear()
        l1_stats = store.stats().l1
    assert l1_stats.removed == {
        "room": l1_stats.evicted,
        "replaced": 1,
        "deleted": 1,
        "expired": 1,
        "cleared": left,
    }
    assert l1_stats.residence.count == l1_stats.evicted > 0


async def test_a_watermark_is_a_cause_of_its_own(anyio_backend: object) -> None:
    l1 = L1Config(capacity=100 * BLOCK, trigger_watermark=0.5, eviction_ratio=0.5)
    async with TieredStore(l1) as store:
        for number in range(99):
            await store.put(f"{number}", bytes(BLOCK - ROOM))
        l1_stats = store.stats().l1
    assert l1_stats.removed == {"watermark": l1_stats.evicted}
    assert l1_stats.residence.count == l1_stats.evicted


async def test_residence_is_the_time_since_the_put_or_load(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 1_000_000_000.0
    monkeypatch.setattr("time.time_ns", lambda: round(clock_s * 1e9))
    await store.put("put", bytes(MiB))
    await store.put("loaded", bytes(MiB))
    await store.clear()
    await store.put("put", bytes(MiB))
    clock_s += 40
    assert await store.get_bytes("loaded") is not None
    clock_s += 60
    for number in range(8):
        await store.put(f"{number}", bytes(MiB))
    residence = store.stats().l1.residence
    assert residence.quantile(1.0) == pytest.approx(100, rel=0.04)
    assert residence.total_s == pytest.approx(160, abs=0.1)


async def test_what_is_pending_and_what_the_breaker_does(
    store: TieredStore, disk: StoppableDisk
) -> None:
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "a", bytes(5))
            await disk.entered()
            stats = store.stats().tiers["disk"]
            assert (stats.pending_writes, stats.pending_bytes) == (1, 5)
    stats = store.stats().tiers["disk"]
    assert (stats.pending_writes, stats.pending_bytes) == (0, 0)
    assert (stats.is_asked, stats.times_given_up) == (True, 0)
    store._parts().tiers[0].health.open(TierUnavailableError("disk", "read", "gone"))
    assert await store.get("b", size=1) is None
    stats = store.stats().tiers["disk"]
    assert (stats.is_asked, stats.times_given_up) == (False, 1)
    assert stats.outcomes["read", "not_asked"] == 1


async def test_status_is_ready_for_json(store: TieredStore) -> None:
    import json

    await store.put("a", b"1")
    status = json.loads(json.dumps(await store.status()))
    assert status["l1"]["residence"] == {"p50_s": 0.0, "p99_s": 0.0}


async def test_figures_may_be_taken_in_any_thread_while_the_store_works(
    store: TieredStore,
) -> None:
    parts = store._parts()
    failures: list[RuntimeError] = []
    ended = threading.Event()

    def look() -> None:
        try:
            while not ended.is_set():
                parts.figures()
        except RuntimeError as failure:
            failures.append(failure)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for round_ in range(30):
            await store.put_many([(f"{round_}-{n}", bytes(16 * KiB)) for n in range(8)])
            with await store.get_many([f"{round_ - 5}-{n}" for n in range(8)]):
                pass
    finally:
        ended.set()
        watcher.join()
    assert not failures
