"""A wall clock that jumps: times to live follow it, and nothing else does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from tests.store.inside import inside
from tieredkv import PutStatus, TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.backends.disk.names import path_of
from tieredkv.config import MiB
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio

HOUR_S: Final = 3600


class Clock:
    """The wall clock of the process, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        right_s, right_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: right_s() + self.ahead_s)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + int(self.ahead_s * 1e9))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(params=[5 * HOUR_S, -5 * HOUR_S], ids=["forwards", "backwards"])
def jump_s(request: pytest.FixtureRequest) -> int:
    jump: int = request.param
    return jump


async def test_values_outlive_a_jump_and_the_last_put_wins(
    clock: Clock, jump_s: int, tmp_path: Path
) -> None:
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path)]) as store:
        await store.put_many([("a", b"old"), ("b", b"old"), ("c", b"old")])
        clock.ahead_s = jump_s
        assert await store.get_bytes("a") == b"old"
        await store.put("b", b"new")
        await store.delete("c")
        inside(store).l1.clear()
        assert [await store.get_bytes(key) for key in "abc"] == [b"old", b"new", None]


async def test_what_a_tier_may_still_hold_is_told_from_what_is_current_after_a_jump(
    clock: Clock, jump_s: int
) -> None:
    tier = FaultyBackend(MemoryBackend())
    async with TieredStore(4 * MiB, [tier]) as store:
        for key in "ab":
            await store.put(key, b"old")
        tier.inject(Fault("write", "raise", times=2))  # these may land, or may not
        for key in "ab":
            await store.put(key, b"new")
        clock.ahead_s = jump_s
        assert (await store.put("b", b"newest")).ok
        inside(store).l1.clear()
        assert await store.get_bytes("a") is None
        assert await store.get_bytes("b") == b"newest"


async def test_a_store_that_opens_by_another_clock_reads_and_replaces(
    clock: Clock, jump_s: int, tmp_path: Path
) -> None:
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path)]) as store:
        await store.put_many([("a", b"old"), ("b", b"old"), ("c", b"old")])
    clock.ahead_s = jump_s
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path)]) as store:
        assert await store.get_bytes("a") == b"old"
        await store.put("b", b"new")
        await store.delete("c")
        inside(store).l1.clear()
        assert [await store.get_bytes(key) for key in "abc"] == [b"old", b"new", None]


@pytest.mark.parametrize("tier", ["l1", "disk"])
async def test_times_to_live_are_those_of_the_wall_clock(
    clock: Clock, tmp_path: Path, tier: str
) -> None:
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path)]) as store:

        async def is_there() -> bool:
            if tier != "l1":
                inside(store).l1.clear()
            return await store.get_bytes("a") == b"value"

        await store.put("a", b"value", ttl_s=HOUR_S)
        clock.ahead_s = -5 * HOUR_S
        assert await is_there()
        clock.ahead_s = 0.9 * HOUR_S
        assert await is_there()
        clock.ahead_s = 1.1 * HOUR_S
        assert not await is_there()
        assert (await store.put("a", b"value", ttl_s=HOUR_S)).ok
        assert await is_there()


async def test_the_breaker_pins_and_absences_do_not_look_at_it(
    clock: Clock, jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    medium = MemoryMedium()
    tier = FaultyBackend(MemoryBackend(medium))
    async with TieredStore(4 * MiB, [tier], negative_ttl_s=60) as store:
        await store.put("a", b"value")
        assert not await store.exists("absent")
        async with store.lookup(["a"], ttl_s=60):
            clock.ahead_s = jump_s
            assert (await store.delete("a")).status == "pinned"
        medium.put("absent", b"by another process")
        assert not await store.exists("absent")
        tier.inject(Fault("read", "raise", times=None), Fault("stat", "raise", times=None))
        for _ in range(3):
            await store.get("b")
        assert not store.stats().tiers["memory"].is_asked
        clock.ahead_s = 0
        assert not store.stats().tiers["memory"].is_asked
    assert "pinned no longer" not in caplog.text


async def test_leases_are_not_old_for_a_jump(
    clock: Clock, jump_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with TieredStore(4 * MiB) as store:
        await store.put("a", b"value")
        lease = await store.get("a")
        assert lease is not None
        clock.ahead_s = jump_s
        store.stats()
        lease.release()
    assert "has been held" not in caplog.text


async def test_eviction_goes_on_by_a_clock_that_was_set_back(clock: Clock, tmp_path: Path) -> None:
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path, capacity="64KiB")]) as store:
        clock.ahead_s = 5 * HOUR_S
        for number in range(40):
            await store.put(f"{number}", bytes(8000))
        clock.ahead_s = -5 * HOUR_S
        for number in range(40, 80):
            assert (await store.put(f"{number}", bytes(8000))).tiers["disk"].status is (
                PutStatus.STORED
            )
        inside(store).l1.clear()
        assert await store.get_bytes("79") == bytes(8000)
        files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
        assert 0 < sum(path.stat().st_size for path in files) <= 64 * 1024
        assert tmp_path / path_of("79") in files


async def test_a_time_to_live_beyond_all_clocks_is_none(tmp_path: Path) -> None:
    async with TieredStore(4 * MiB, [DiskBackend(tmp_path)]) as store:
        for ttl_s in (1e9, 1e12, 1e18, 1e300):
            result = await store.put("a", b"value", ttl_s=ttl_s)
            assert result.tiers["disk"].status is PutStatus.STORED, result
            inside(store).l1.clear()
            assert await store.get_bytes("a") == b"value"
