"""Old bytes stay away: what a tier did not replace, and what lands too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tieredkv import DeleteStatus, GetStatus, PutStatus, TieredStore, WriteThrough
from tieredkv.backends import DiskBackend
from tieredkv.config import Integrity, MiB
from tieredkv.errors import TierFullError
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers.fences import Fences, Generations

HIT, MISS, UNKNOWN = GetStatus.HIT, GetStatus.MISS, GetStatus.UNKNOWN


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tier() -> FaultyBackend:
    return FaultyBackend(MemoryBackend())


class TestBook:
    def test_without_a_fence_any_generation_will_do(self) -> None:
        assert Fences().floor("a") == 0
        assert Fences().holds("a", 100) is None

    def test_an_unanswered_put_keeps_what_is_older_away(self) -> None:
        fences = Fences()
        fences.unknown("a", 7, UNKNOWN)
        assert (fences.floor("a"), fences.holds("a", 100), fences.floor("b")) == (7, UNKNOWN, 0)

    def test_a_later_put_raises_a_standing_fence_and_does_not_prolong_it(
        self, clock: Clock
    ) -> None:
        fences = Fences(10, clock=clock)
        fences.unknown("a", 7, UNKNOWN)
        clock.now += 9
        fences.carried_out("a", 8, HIT, 100)
        assert (fences.floor("a"), fences.holds("a", 100)) == (8, HIT)
        assert fences.holds("a", 99) is MISS  # so this came late
        clock.now += 1
        assert (fences.floor("a"), len(fences)) == (0, 0)

    def test_an_older_outcome_that_comes_late_lowers_nothing(self) -> None:
        fences = Fences()
        fences.unknown("a", 8, MISS)
        fences.carried_out("a", 7, HIT)
        fences.unknown("a", 6, UNKNOWN)
        assert (fences.floor("a"), fences.holds("a", 100)) == (8, MISS)
        fences.missed("b", 8)
        fences.carried_out("b", 7, HIT)
        assert fences.floor("b") == 8

    def test_what_a_tier_did_not_take_stands_until_it_takes_a_later_one(self, clock: Clock) -> None:
        fences = Fences(10, clock=clock)
        fences.missed("a", 7)
        clock.now += 1000
        assert (fences.floor("a"), fences.holds("a", 100)) == (7, MISS)
        fences.carried_out("a", 8, HIT, 100)
        assert (fences.floor("a"), len(fences)) == (0, 0)

    def test_what_is_carried_out_after_all_needs_none(self) -> None:
        fences = Fences()
        fences.missed("a", 7)  # as a delete begins
        fences.carried_out("a", 7, MISS)
        assert len(fences) == 0
        fences.unknown("b", 8, UNKNOWN)
        fences.carried_out("b", 8, HIT, 100)  # at a later try
        assert (fences.floor("b"), fences.holds("b", 100)) == (8, HIT)
        fences.missed("c", 9)
        assert len(fences) == 2

    def test_a_put_that_was_never_answered_stands_on_as_one_not_taken(self, clock: Clock) -> None:
        fences = Fences(10, clock=clock)
        fences.unknown("a", 7, UNKNOWN)
        clock.now += 11
        assert (fences.floor("a"), fences.holds("a", 100)) == (7, MISS)

    def test_where_values_do_not_tell_their_generation_all_fences_end(self, clock: Clock) -> None:
        fences = Fences(10, framed=False, clock=clock)
        fences.unknown("a", 7, UNKNOWN)
        fences.missed("b", 7)
        clock.now += 10
        assert (fences.floor("a"), fences.floor("b"), len(fences)) == (0, 0, 0)

    def test_the_oldest_of_too_many_becomes_a_floor_for_the_rest_of_its_time(
        self, clock: Clock
    ) -> None:
        fences = Fences(10, most=2, framed=False, clock=clock)
        for generation, name in enumerate("abc", 7):
            fences.unknown(name, generation, UNKNOWN)
            clock.now += 1
        assert [fences.floor(name) for name in "abcd"] == [7, 8, 9, 7]
        clock.now += 7
        assert [fences.floor(name) for name in "abcd"] == [0, 8, 9, 0]

    def test_a_floor_that_has_ended_does_not_come_back_with_the_next(self, clock: Clock) -> None:
        fences = Fences(10, most=1, framed=False, clock=clock)
        fences.unknown("a", 100, UNKNOWN)
        fences.unknown("b", 7, UNKNOWN)
        assert fences.floor("z") == 100
        clock.now += 9
        fences.unknown("b", 8, UNKNOWN)
        clock.now += 9
        fences.unknown("c", 9, UNKNOWN)
        assert fences.floor("z") == 8

    def test_fences_that_have_ended_hold_nothing_and_are_not_counted(self, clock: Clock) -> None:
        fences = Fences(10, framed=False, clock=clock)
        fences.unknown("a", 7, UNKNOWN)
        clock.now += 10
        assert fences.holds("a", 100) is None
        fences.unknown("a", 7, UNKNOWN)
        clock.now += 10
        assert len(fences) == 0

    def test_of_too_many_not_taken_the_oldest_is_forgotten(self) -> None:
        fences = Fences(most=2)
        for generation, name in enumerate("abc", 7):
            fences.missed(name, generation)
        assert [fences.floor(name) for name in "abcd"] == [0, 8, 9, 0]

    def test_generations_follow_the_clock_in_microseconds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_123_456_789)
        assert Generations().draw() == 1_700_000_000_123_456

    def test_generations_only_rise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        generations = Generations()
        first = generations.draw()
        monkeypatch.setattr("time.time_ns", lambda: 0)  # the clock was set back
        assert [generations.draw(), generations.draw()] == [first + 1, first + 2]


@pytest.mark.anyio
@pytest.mark.parametrize("integrity", ["checksum", "size"])
class TestStore:
    async def test_what_an_unanswered_put_may_have_left_is_not_read(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            await store.put("a", b"old")
            tier.inject(Fault("write", "raise"))
            assert not (await store.put("a", b"new")).ok
            assert await store.get_bytes("a") == b"new"
            await store.clear()
            (result,) = await store.get_many(["a"])
            assert (result.status, result.object) == (MISS, None)
            (stat,) = await store.stat_many(["a"])
            assert stat.status is (UNKNOWN if integrity == "checksum" else MISS)

    async def test_a_late_put_does_not_replace_a_later_one(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        tier.deadline_s = 0.01
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            tier.inject(Fault("write", "late"))
            put = await store.put("a", b"old")
            assert put.tiers[tier.name].status is PutStatus.UNKNOWN
            tier.deadline_s = 5.0
            assert (await store.put("a", b"newer")).ok
            await tier.land()
            await store.clear()
            assert not await store.exists("a")
            assert await store.get_bytes("a") is None
            assert store.stats().tiers[tier.name].outcomes["read", "stale_rejected"] == 1

    async def test_a_late_put_does_not_undo_an_acknowledged_delete(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        tier.deadline_s = 0.01
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            tier.inject(Fault("write", "late"))
            await store.put("a", b"old")
            tier.deadline_s = 5.0
            assert (await store.delete("a")).tiers[tier.name].status is DeleteStatus.ABSENT
            await tier.land()
            assert await store.get_bytes("a") is None
            assert not await store.exists("a")

    async def test_a_delete_without_an_answer_hides_what_it_may_have_left(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            await store.put("a", b"old")
            tier.inject(Fault("delete", "raise"))
            assert (await store.delete("a")).status is DeleteStatus.UNKNOWN
            assert not await store.exists("a")
            assert await store.get_bytes("a") is None

    async def test_a_tier_that_did_not_take_a_put_does_not_answer_with_what_was_before(
        self, tier: FaultyBackend, tmp_path: Path, integrity: Integrity
    ) -> None:
        disk = FaultyBackend(DiskBackend(tmp_path))
        async with TieredStore(4 * MiB, [tier, disk], integrity=integrity) as store:
            await store.put("a", b"old")
            tier.inject(Fault("write", "raise", error=TierFullError))
            assert (await store.put("a", b"new")).ok
            await store.flush()
            await store.clear()
            with await store.get_many(["a"]) as (result,):
                assert result.object is not None
                assert (result.tier, bytes(result.object)) == ("disk", b"new")

    async def test_a_later_put_that_is_taken_is_read_again(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            tier.inject(Fault("write", "raise", error=TierFullError))
            await store.put("a", b"first")
            assert (await store.put("a", b"second")).ok
            await store.clear()
            assert await store.get_bytes("a") == b"second"

    async def test_a_put_that_was_never_sent_hides_nothing_of_a_later_one(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        at_once = WriteThrough(require="none")
        async with TieredStore(4 * MiB, [tier], integrity=integrity, write_policy=at_once) as store:
            tier.inject(Fault("write", "late"), Fault("write", "raise", after=1))
            await store.put("a", b"first")
            await tier.until_held()
            await store.put("a", b"waits, and is overtaken")
            await store.put("a", b"gets no answer")
            await tier.land()
            await store.flush()
            await store.clear()
            (stat,) = await store.stat_many(["a"])
            assert stat.status is (UNKNOWN if integrity == "checksum" else MISS)

    async def test_other_keys_are_not_touched(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        async with TieredStore(4 * MiB, [tier], integrity=integrity) as store:
            await store.put("b", b"other")
            tier.inject(Fault("write", "raise"))
            await store.put("a", b"lost")
            await store.clear()
            assert await store.get_bytes("b") == b"other"
            assert (await store.status())["tiers"][tier.name]["fences"] == 1

    async def test_a_put_that_was_skipped_is_not_answered_with_an_older_pending_one(
        self, tier: FaultyBackend, integrity: Integrity
    ) -> None:
        at_once = WriteThrough(require="none")
        async with TieredStore(
            4 * MiB, [tier], integrity=integrity, write_policy=at_once, max_pending=1
        ) as store:
            tier.inject(Fault("write", "late"))
            await store.put("a", b"old")
            await tier.until_held()
            put = await store.put("a", b"new")
            assert str(put.tiers[tier.name]) == "skipped (busy)"
            await store.clear()
            assert await store.get_bytes("a") is None
            await tier.land()
            await store.flush()
            assert await store.get_bytes("a") is None
