"""Loads in flight: what the tiers said of one, all together, and which are of use to others."""

from __future__ import annotations

import pytest

from tieredkv import GetStatus
from tieredkv.errors import TierError
from tieredkv.pool.arena import Arena
from tieredkv.tiers.inflight import InFlight, Load

pytestmark = pytest.mark.anyio

FIRST, SECOND = TierError("disk", "read", "first"), TierError("valkey", "read", "second")


async def test_the_most_telling_answer_stays_with_its_tier_and_cause() -> None:
    load = Load("a", None)
    load.note("disk", GetStatus.UNKNOWN, FIRST)
    assert (load.status, load.tier, load.error) == (GetStatus.UNKNOWN, "disk", FIRST)
    load.note("valkey", GetStatus.MISS, None)
    load.note("hfbucket", GetStatus.UNKNOWN, SECOND)
    assert (load.status, load.tier, load.error) == (GetStatus.UNKNOWN, "disk", FIRST)
    load.note("valkey", GetStatus.HIT, None)
    assert (load.status, load.tier, load.error) == (GetStatus.HIT, "valkey", None)


async def test_a_cause_is_told_though_an_earlier_tier_had_none() -> None:
    load = Load("a", None)
    load.note("disk", GetStatus.UNKNOWN, None)
    load.note("valkey", GetStatus.UNKNOWN, SECOND)
    assert (load.tier, load.error) == ("valkey", SECOND)


async def test_who_waits_for_settled_loads_gives_way_for_none_of_them() -> None:
    load, _ = InFlight().join("a", None)
    load.settle(Arena(4096, alignment_bytes=4096, overflow_bytes=0, room_bytes=0))
    with pytest.raises(StopIteration):  # a turn of the loop for each value of a batch is dear
        load.wait().send(None)


async def test_loads_are_of_use_again_when_their_key_has_changed() -> None:
    inflight = InFlight()
    with inflight.changing(["a"]):
        with inflight.changing(["a"]):
            assert not inflight.join("a", None)[0].current
        assert not inflight.join("a", None)[0].current
        assert inflight.join("b", None)[0].current
    assert inflight.join("a", None)[0].current


async def test_a_load_from_before_or_during_a_change_is_of_no_use_after_it() -> None:
    inflight = InFlight()
    before, _ = inflight.join("a", None)
    with inflight.changing(["a"]):
        assert not before.current
        during, is_new = inflight.join("a", None)
        assert is_new
        assert inflight.join("a", None) == (during, False)
    assert inflight.join("a", None)[0] not in (before, during)
