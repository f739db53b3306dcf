"""L1 memory under pressure: overflow, leases, views, places that callers fill."""

from __future__ import annotations

import gc
import resource
import threading
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from tests.store.inside import inside, users
from tieredkv import (
    GetStatus,
    L1Config,
    PutStatus,
    TieredStore,
)
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import (
    OutOfMemoryError,
)
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


async def test_many_values_beyond_l1_all_come_back(store: TieredStore) -> None:
    values = {f"key-{n}": bytes([n]) * (60 * KiB + n) for n in range(200)}  # three times L1
    results = await store.put_many(values.items())
    assert all(result.ok for result in results)
    with await store.get_many(values) as got:
        assert {r.key: bytes(r.object) for r in got if r.object} == values
        assert {r.tier for r in got} == {"l1", "disk"}
    stats = store.stats()
    assert stats.l1.used_bytes <= stats.l1.capacity_bytes == 4 * MiB
    assert stats.pending_bytes == 0


async def test_a_value_larger_than_l1_goes_through_the_overflow(store: TieredStore) -> None:
    value = bytes(6 * MiB)
    result = await store.put("large", value)
    assert result.ok
    assert result.tiers["l1"].status is PutStatus.SKIPPED
    assert result.tiers["l1"].reason == "no_memory"
    lease = await store.get("large")
    assert lease is not None
    assert lease.tier == "disk"
    assert store.stats().l1.overflow_used_bytes > 6 * MiB
    assert lease.view == value
    lease.release()
    assert store.stats().l1.overflow_used_bytes == 0


async def test_what_the_system_has_no_memory_for_is_rejected() -> None:
    value, left_bytes = bytes(48 * MiB), 24 * MiB
    l1 = L1Config(capacity="1MiB", overflow="64MiB")
    async with TieredStore(l1, [MemoryBackend()]) as store:
        assert (await store.put("large", value)).ok
        taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + left_bytes, before[1]))
        try:
            result = await store.put("another", value)
            (got,) = await store.get_many(["large"])
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        assert str(result.tiers["l1"]) == "rejected (no_memory)"
        assert got.status is GetStatus.REJECTED
        assert isinstance(got.error, OutOfMemoryError)
        assert await store.get_bytes("large") == value


async def test_without_memory_a_put_is_rejected_and_a_get_says_why(tmp_path: Path) -> None:
    l1 = L1Config(capacity="1MiB", overflow=0)
    async with TieredStore(l1=l1, l2=[DiskBackend(tmp_path)]) as store:
        await store.put("large", bytes(900 * KiB))
        await store.put("held", bytes(300 * KiB))
        lease = await store.get("held")
        assert lease is not None
        (result,) = await store.get_many(["large"])
        assert result.status is GetStatus.REJECTED
        assert "release leases" in str(result.error)
        put = await store.put("other", bytes(900 * KiB))
        assert not put.ok
        assert put.tiers["l1"].status is PutStatus.REJECTED
        assert put.tiers["disk"].status is PutStatus.SKIPPED
        lease.release()
        assert (await store.put("other", bytes(900 * KiB))).ok


async def test_a_put_waits_for_memory_that_is_about_to_be_released(tmp_path: Path) -> None:
    l1 = L1Config(capacity="1MiB", overflow=0)
    async with TieredStore(l1=l1, l2=[DiskBackend(tmp_path)]) as store:
        await store.put("held", bytes(600 * KiB))
        lease = await store.get("held")
        assert lease is not None
        async with anyio.create_task_group() as tasks:

            async def put() -> None:
                assert (await store.put("other", bytes(600 * KiB))).ok

            tasks.start_soon(put)
            await anyio.wait_all_tasks_blocked()
            lease.release()


async def test_views_outlive_leases_eviction_and_refill(store: TieredStore) -> None:
    await store.put("key", b"k" * 100_000)
    lease = await store.get("key")
    assert lease is not None
    view = lease.view
    array = np.frombuffer(memoryview(view)[10:90_000], dtype=np.uint16)
    lease.release()
    view.release()
    for n in range(200):
        await store.put(f"other-{n}", bytes([n]) * 100_000)
    gc.collect()  # what waits for the array must not be garbage itself
    assert (array == 0x6B6B).all()
    assert store.stats().blocks_held_by_views == 1
    del array
    assert store.stats().blocks_held_by_views == 0


async def test_leases_may_be_released_in_another_thread(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    lease = await store.get("key")
    assert lease is not None
    thread = threading.Thread(target=lease.release)
    thread.start()
    thread.join()
    assert store.stats().l1.leases == 0
    assert users(store, "key") == 1


async def test_a_lease_held_too_long_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("tieredkv.pool.lease.time.monotonic", lambda: now)
    async with TieredStore(l1=L1Config(capacity="1MiB", lease_warn_s=60)) as store:
        await store.put("key", b"bytes")
        with await store.get("key") as held:  # type: ignore[union-attr]
            for _ in range(4):
                with await store.get("key"):  # type: ignore[union-attr]
                    now += 61
                    assert store.stats().l1.leases == 2
            assert caplog.text.count("'key' (5 bytes) has been held for more than 60 s") == 1
            assert bytes(held) == b"bytes"
        assert store.stats().l1.leases == 0


async def test_a_value_is_filled_in_place_and_invisible_before(store: TieredStore) -> None:
    async with store.reserve("key", 5) as slot:
        slot.view[:] = b"bytes"
        assert await store.get("key") is None
        assert slot.result is None
    assert slot.result is not None
    assert slot.result.ok
    inside(store).l1.clear()
    assert await store.get_bytes("key") == b"bytes"


async def test_an_exception_drops_what_was_reserved(store: TieredStore) -> None:
    async def fill() -> None:
        async with store.reserve("key", 100_000) as slot:
            slot.view[:5] = b"bytes"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fill()
    assert not await store.exists("key")
    assert store.stats().l1.used_bytes == 0


async def test_reserving_without_memory_says_so() -> None:
    async with TieredStore(l1=L1Config(capacity="1MiB", overflow=0)) as store:
        await store.put("held", bytes(600 * KiB))
        with (
            await store.get("held"),  # type: ignore[union-attr]
            pytest.raises(OutOfMemoryError, match="no memory for 614400 bytes"),
        ):
            await store.reserve("key", 600 * KiB).__aenter__()
        async with store.reserve("key", 600 * KiB) as slot:
            pass
        assert slot.result is not None
        assert slot.result.ok
