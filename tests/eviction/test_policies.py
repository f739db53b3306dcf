"""What each policy does that others do not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import get_args

import pytest

from tieredkv.errors import ConfigError
from tieredkv.keys import ObjectKey, Tenant
from tieredkv.pool.eviction import (
    ARC,
    LRU,
    S3FIFO,
    EvictionPolicy,
    Gittins,
    IsolatedLRU,
    NoEviction,
    PolicyName,
    make_policy,
)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def of(tenant: str, count: int) -> list[str]:
    return [
        ObjectKey("model", 0, bytes([number]), cache_salt=tenant).wire_name
        for number in range(count)
    ]


def fill(policy: EvictionPolicy, new: Iterable[str]) -> None:
    for name in new:
        policy.insert(name)


def evict(policy: EvictionPolicy, count: int = 1, tenant: Tenant | None = None) -> list[str]:
    victims = policy.victims() if tenant is None else policy.victims(tenant)
    evicted = list(itertools.islice(victims, count))
    victims.close()
    for name in evicted:
        policy.remove(name, evicted=True)
    return evicted


def hits(policy: EvictionPolicy, capacity: int, requests: Iterable[str]) -> int:
    held: set[str] = set()
    count = 0
    for name in requests:
        if name in held:
            count += 1
            policy.access(name)
        else:
            if len(held) == capacity:
                held.difference_update(evict(policy))
            held.add(name)
            policy.insert(name)
    return count


def hot_names_between_scans(num_requests: int) -> list[str]:
    dice = random.Random(7)
    hot = names("hot", 200)
    scanned = (f"scanned{number}" for number in itertools.count())
    requests: list[str] = []
    while len(requests) < num_requests:
        requests += dice.sample(hot, 20)
        requests += itertools.islice(scanned, 60)
    return requests


@pytest.mark.parametrize("name", get_args(PolicyName))
def test_every_policy_has_a_name(name: PolicyName) -> None:
    policy = make_policy(name)
    assert len(policy) == 0
    assert policy is not make_policy(name)


def test_the_default_is_gittins() -> None:
    assert type(make_policy("default")) is type(make_policy("gittins")) is Gittins


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"eviction_policy='lur' .*did you mean 'lru'"):
        make_policy("lur")  # type: ignore[arg-type]


def test_lru_forgets_what_was_read_longest_ago() -> None:
    policy = LRU()
    fill(policy, "abcd")
    policy.access("a")
    policy.insert("b")
    assert evict(policy, 4) == ["c", "d", "a", "b"]


class CountedLRU(LRU):
    looks = 0

    def _next(self, tenant: Tenant) -> str | None:
        self.looks += 1
        return super()._next(tenant)


def test_names_that_are_parked_cost_the_next_eviction_nothing() -> None:
    policy = CountedLRU()
    fill(policy, names("leased", 1000))
    fill(policy, ["free"])
    for name in policy.victims():
        if name == "free":
            break
        policy.park(name)
    before = policy.looks
    assert evict(policy) == ["free"]
    assert policy.looks == before + 1


def test_s3fifo_passes_a_scan_through_its_small_queue() -> None:
    policy = S3FIFO()
    fill(policy, names("kept", 90))
    policy.access_chain(names("kept", 90))
    fill(policy, names("scanned", 10))
    evicted: list[str] = []
    for name in names("later", 100):
        evicted += evict(policy)
        policy.insert(name)
    assert all(not name.startswith("kept") for name in evicted)


def test_s3fifo_tries_a_name_that_returns_no_second_time() -> None:
    policy = S3FIFO()
    fill(policy, names("x", 20))
    returning = evict(policy)[0]
    policy.insert(returning)
    assert returning not in evict(policy, 17)


def test_s3fifo_counts_three_reads_at_most() -> None:
    policy = S3FIFO()
    reads = {"nine times": 9, "thrice": 3, "twice": 2}
    fill(policy, reads)
    for name in reads:
        policy.access(name)  # and that takes it to main, where it starts anew
    assert next(policy.victims()) == "nine times"
    for name, count in reads.items():
        for _ in range(count):
            policy.access(name)
    assert evict(policy, 3) == ["twice", "nine times", "thrice"]


def test_s3fifo_remembers_four_names_for_each_that_it_holds() -> None:
    policy = S3FIFO()
    fill(policy, names("x", 100))
    for number in range(1000):
        evict(policy)
        policy.insert(f"y{number}")
    assert len(policy._ghosts) == 400
    evict(policy, 80)  # the tier's values are larger now
    assert len(policy._ghosts) <= 4 * 21


def test_arc_keeps_what_was_read_twice_from_a_scan() -> None:
    policy = ARC()
    fill(policy, names("kept", 50))
    policy.access_chain(names("kept", 50))
    fill(policy, names("x", 50))
    for number in range(500):
        assert not evict(policy)[0].startswith("kept")
        policy.insert(f"scanned{number}")


def test_arc_gives_new_names_more_room_when_they_return() -> None:
    policy = ARC()
    fill(policy, names("read", 50))
    policy.access_chain(names("read", 50))
    fill(policy, names("new", 50))
    returning = evict(policy, 10)
    assert all(name.startswith("new") for name in returning)
    fill(policy, returning)
    assert policy._target == 10
    assert evict(policy, 31)[-1].startswith("read")


def test_arc_remembers_at_most_as_many_names_as_it_holds() -> None:
    policy = ARC()
    fill(policy, names("x", 100))
    for number in range(1000):
        evict(policy)
        policy.insert(f"y{number}")
        if number % 3 == 0:
            policy.access(f"y{number}")
        assert len(policy._b1) + len(policy._b2) <= 100


def test_isolated_lru_lets_a_burst_push_out_itself() -> None:
    policy = IsolatedLRU()
    fill(policy, of("quiet", 5))
    fill(policy, of("busy", 10))
    assert evict(policy, 5) == of("busy", 5)


def test_isolated_lru_evicts_for_one_tenant_from_that_tenant() -> None:
    policy = IsolatedLRU()
    fill(policy, of("quiet", 5))
    fill(policy, of("busy", 10))
    assert evict(policy, 7, tenant="quiet") == of("quiet", 5)


def test_isolated_lru_levels_its_tenants() -> None:
    policy = IsolatedLRU()
    for tenant, count in (("a", 9), ("b", 4), ("c", 7)):
        fill(policy, of(tenant, count))
    evict(policy, 12)
    assert len(policy) == 8
    assert {len(list(policy.victims(tenant))) for tenant in "abc"} <= {2, 3}


def test_isolated_lru_keeps_nothing_for_a_tenant_that_holds_nothing() -> None:
    policy = IsolatedLRU()
    for number in range(100):
        fill(policy, of(f"tenant-{number}", 2))
    evict(policy, 150)
    for number in range(100):
        for name in of(f"tenant-{number}", 2):
            policy.remove(name, evicted=False)
    assert len(policy) == 0
    assert not policy._tenants
    assert not policy._by_count


def test_no_eviction_notes_nothing() -> None:
    policy = NoEviction()
    fill(policy, "abc")
    policy.access("a")
    policy.refresh("a")
    policy.park("b")
    policy.unpark("b")
    policy.remove("c", evicted=False)
    assert len(policy) == 0
    assert list(policy.victims()) == []


def test_gittins_begins_as_an_lru_that_prefers_names_read_again() -> None:
    policy = Gittins()
    fill(policy, ["a", "b", "c", "d"])
    policy.access("b")
    assert evict(policy, 4) == ["a", "c", "d", "b"]


def test_gittins_takes_up_a_name_that_returns_where_it_was() -> None:
    policy = Gittins()
    fill(policy, names("x", 20))
    returning = evict(policy)[0]
    policy.insert(returning)
    assert returning in policy._twice


def test_gittins_does_not_know_a_name_that_was_deleted() -> None:
    policy = Gittins()
    fill(policy, names("x", 20))
    policy.remove("x0", evicted=False)
    policy.insert("x0")
    assert "x0" in policy._once


def test_gittins_learns_to_keep_hot_names_from_scans() -> None:
    requests = hot_names_between_scans(40_000)
    assert hits(Gittins(), 250, requests) > 3 * hits(LRU(), 250, requests)
