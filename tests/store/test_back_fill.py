"""What a tier answers with enters the tiers above it, as far as that tier wants it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tieredkv import GetStatus, L1Config, TieredStore
from tieredkv.backends import DiskBackend, WriteRequest
from tieredkv.config import KiB, MiB, Promotion, WriteOn
from tieredkv.results import WriteOutcome
from tieredkv.testing.faults import Fault, FaultyBackend, FaultyOperation
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio


def tiers(
    path: Path, *, write_on: WriteOn = "put", promotion: Promotion = "always"
) -> tuple[FaultyBackend, DiskBackend]:
    upper = FaultyBackend(MemoryBackend(write_on=write_on))
    return upper, DiskBackend(path, promotion=promotion)


async def lose_above(store: TieredStore, upper: FaultyBackend) -> None:
    await store.flush()
    await store.clear(tiers=["l1", upper.name])


async def is_in(store: TieredStore, tier: str, key: str) -> bool:
    await store.flush()
    return key in [found async for found in store.keys(tier)]


async def test_it_is_written_to_the_tiers_above_that_lack_it(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        assert await store.get_bytes("a") == b"value"
        assert await is_in(store, upper.name, "a")
        await store.clear(tiers=["l1", "disk"])
        assert await store.get_bytes("a") == b"value"
        assert store.stats().tiers[upper.name].outcomes["write", "back_fill"] == 1


@pytest.mark.parametrize(("operation", "size"), [("stat", None), ("read", 5)])
async def test_a_tier_that_did_not_answer_is_not_written_to(
    tmp_path: Path, operation: FaultyOperation, size: int | None
) -> None:
    upper, disk = tiers(tmp_path)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        upper.inject(Fault(operation, "raise"))
        with await store.get_many(["a"], sizes=[size]) as (result,):
            assert result.tier == "disk"
        assert not await is_in(store, upper.name, "a")


async def test_it_takes_no_more_room_than_writes_may(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    async with TieredStore(4 * MiB, [upper, disk], max_pending=16 * KiB) as store:
        for key in "ab":
            await store.put(key, bytes(8 * KiB))
            await store.flush()
        await lose_above(store, upper)
        upper.inject(Fault("write", "late", "a"))
        for key in "ab":
            assert await store.get_bytes(key) == bytes(8 * KiB)
        await upper.until_held()
        await upper.land()
        assert [await is_in(store, upper.name, key) for key in "ab"] == [True, False]


async def test_a_tier_that_expires_values_is_told_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Expiring(MemoryBackend):
        def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
            told.append(request.ttl_s)
            return super()._write(client, request)

    told: list[float | None] = []
    now_s = int(time.time())
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: now_s * 10**9)
    async with TieredStore(4 * MiB, [Expiring(native_ttl=True), DiskBackend(tmp_path)]) as store:
        await store.put("a", b"value", ttl_s=3600)
        await store.flush()
        await store.clear(tiers=["l1", "memory"])
        now_s += 600
        assert await store.get_bytes("a") == b"value"
        await store.flush()
    assert told == [3600, 3000]


@pytest.mark.parametrize("write_on", ["evict", "second_hit", "never"])
async def test_a_tier_that_is_not_written_with_puts_is_not_either(
    tmp_path: Path, write_on: WriteOn
) -> None:
    upper, disk = tiers(tmp_path, write_on=write_on)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        assert await store.get_bytes("a") == b"value"
        assert not await is_in(store, upper.name, "a")


async def test_a_damaged_copy_is_repaired(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    value = b"value" * 100  # so that the damage is in the payload
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        upper.inject(Fault("write", "torn"))
        await store.put("a", value)
        await store.flush()
        await store.clear()
        assert await store.get_bytes("a") == value
        await store.flush()
        await store.clear(tiers=["l1", "disk"])
        assert await store.get_bytes("a") == value


async def test_a_put_during_it_wins(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    upper.deadline_s = 0.01
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"old")
        await lose_above(store, upper)
        upper.inject(Fault("write", "late"))
        assert await store.get_bytes("a") == b"old"
        assert (await store.put("a", b"new")).ok
        await store.flush()
        await upper.land()
        await store.clear()
        assert await store.get_bytes("a") == b"new"


async def test_its_time_to_live_goes_with_it(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value", ttl_s=3600)
        await lose_above(store, upper)
        lease = await store.get("a")
        assert lease is not None
        lease.release()
        await store.flush()
        await store.clear(tiers=["l1", "disk"])
        assert await store.get_bytes("a") == b"value"


async def test_an_aged_copy_stays_in_l1(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path)
    async with TieredStore(L1Config(capacity=4 * MiB, max_age_s=3600), [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        assert await store.get_bytes("a") == b"value"
        assert not await is_in(store, upper.name, "a")


@pytest.mark.parametrize(
    ("promotion", "from_l1"),
    [("always", [False, True, True]), ("second_hit", [False, False, True]), ("never", [False] * 3)],
)
async def test_a_tier_says_when_its_values_rise(
    tmp_path: Path, promotion: Promotion, from_l1: list[bool]
) -> None:
    upper, disk = tiers(tmp_path, promotion=promotion)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        found = []
        for _ in from_l1:
            with await store.get_many(["a"]) as (result,):
                found.append(result.tier == "l1")
        assert found == from_l1
        assert await is_in(store, upper.name, "a") is any(from_l1)


async def test_the_first_hits_of_very_many_names_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieredkv.tiers.tier._NAMES_REMEMBERED", 2)
    upper, disk = tiers(tmp_path, promotion="second_hit")
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put_many([(key, b"value") for key in "abc"])
        await lose_above(store, upper)
        for key in "abcbca":
            assert await store.get_bytes(key) == b"value"
        assert [await is_in(store, "l1", key) for key in "abc"] == [False, True, True]


async def test_a_prefetch_is_asked_for(tmp_path: Path) -> None:
    upper, disk = tiers(tmp_path, promotion="never")
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await lose_above(store, upper)
        (result,) = (await store.prefetch(["a"])).results
        assert result.status is GetStatus.HIT
        lease = store.get_nowait("a")
        assert lease is not None
        lease.release()


async def test_what_others_keep_under_its_name_is_not_overwritten(tmp_path: Path) -> None:
    upper, disk = MemoryBackend(), DiskBackend(tmp_path)
    async with TieredStore(4 * MiB, [upper, disk]) as store:
        await store.put("a", b"value")
        await store.flush()
        await store.clear(tiers=["l1"])
        foreign = b"x" * 69  # as long as the frame
        upper.medium.put("a", foreign)
        assert await store.get_bytes("a") == b"value"
        await store.flush()
        assert upper.medium.get("a") == foreign
