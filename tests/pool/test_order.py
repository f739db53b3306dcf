"""What the policy hears of hits, requests and entries in use."""

from __future__ import annotations

from tests.pool.test_memory_tier import L1
from tieredkv.pool.arena import Entry
from tieredkv.pool.eviction import LRU
from tieredkv.tiers.order import Order


class Recording(LRU):
    """An LRU that writes down what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def insert(self, name: str) -> None:
        self.heard.append(f"insert {name}")
        super().insert(name)

    def access(self, name: str) -> None:
        self.heard.append(f"access {name}")
        super().access(name)

    def refresh(self, name: str) -> None:
        self.heard.append(f"refresh {name}")
        super().refresh(name)

    def park(self, name: str) -> None:
        self.heard.append(f"park {name}")
        super().park(name)


def touch(order: Order, *names: str) -> list[Entry]:
    entries = [Entry(name, 1, 0) for name in names]
    for entry in entries:
        entry.touched = True
        order.touched.append(entry)
    return entries


class TestReads:
    def test_are_told_before_the_next_insert_and_once(self) -> None:
        policy = Recording()
        order = Order(policy)
        entries = touch(order, "a", "b")
        assert policy.heard == []
        order.insert("c")
        order.insert("d")
        assert policy.heard == ["access a", "access b", "insert c", "insert d"]
        assert not any(entry.touched for entry in entries)

    def test_are_told_before_the_next_eviction(self) -> None:
        policy = Recording()
        order = Order(policy)
        for name in "abc":
            order.insert(name)
        touch(order, "a")
        assert next(iter(order.victims())) == "b"

    def test_do_not_pile_up(self) -> None:
        policy = Recording()
        order = Order(policy)
        touch(order, *(f"{n}" for n in range(1023)))
        order.tell_some()
        assert policy.heard == []
        touch(order, "1023")
        order.tell_some()
        assert len(policy.heard) == 1024
        assert order.touched == []

    def test_of_one_request_are_told_from_its_tail(self) -> None:
        tier = L1(3)
        for name in "abc":
            tier.put(name)
        hits: list[Entry] = []
        leases = tier.lease_many(["c", "a", "b"], ["c", "a", "b"], hits)
        tier.touch(hits)
        for lease in leases:
            assert lease is not None
            lease.release()
        tier.put("d", 3)
        assert tier.evicted_names == ["b", "a", "c"]


class TestRequests:
    def test_leave_from_the_tail_in_whatever_order_they_came_in(self) -> None:
        tier = L1(5)
        for name in ("old", "head"):
            tier.put(name)
        tier.expect(["head", "b", "c", "d"], ["b", "c", "d"])
        for name in "cdb":
            tier.put(name)
        for n in range(5):
            tier.put(f"{n}")
        assert tier.evicted_names == ["old", "d", "c", "b", "head"]

    def test_are_refreshed_once_when_the_last_is_there(self) -> None:
        policy = Recording()
        order = Order(policy)
        order.expect(["a", "b", "c"], ["b", "c"])
        order.insert("c")
        assert policy.heard == ["insert c"]
        order.insert("b")
        assert policy.heard == ["insert c", "insert b", "refresh c", "refresh b", "refresh a"]
        order.insert("b")
        assert policy.heard[5:] == ["insert b"]

    def test_the_latest_request_for_a_name_counts(self) -> None:
        policy = Recording()
        order = Order(policy)
        order.expect(["a", "x"], ["x"])
        order.expect(["b", "x"], ["x"])
        order.insert("x")
        assert policy.heard == ["insert x", "refresh x", "refresh b"]

    def test_a_single_key_is_no_chain(self) -> None:
        policy = Recording()
        order = Order(policy)
        order.expect(["a"], ["a"])
        order.insert("a")
        assert policy.heard == ["insert a"]

    def test_those_that_never_come_are_forgotten(self) -> None:
        policy = Recording()
        order = Order(policy)
        order.expect(["head", "tail"], ["tail"])
        for n in range(700):
            order.expect([f"{n}-{k}" for k in range(100)], [f"{n}-99"])
        assert len(order._awaited) <= 656
        assert order._noted_names <= 65_536
        order.insert("tail")
        assert policy.heard == ["insert tail"]
        order.insert("699-99")
        assert len(policy.heard) == 102


class TestEntriesInUse:
    def test_are_parked_once_and_come_back_when_their_use_ends(self) -> None:
        tier = L1(4)
        policy = Recording()
        tier._order._policy = policy
        for name in "abcd":
            tier.put(name)
        a, b = tier.read("a"), tier.read("b")
        for name in "efgh":
            tier.put(name)
        assert policy.heard.count("park a") == policy.heard.count("park b") == 1
        assert tier.evicted_names == ["c", "d", "e", "f"]
        b.release()
        tier.put("i")
        assert tier.evicted_names[4:] == ["b"]
        a.release()
        tier.put("j")
        assert tier.evicted_names[5:] == ["a"]

    def test_deleted_or_replaced_meanwhile(self) -> None:
        tier = L1(4)
        for name in "abcd":
            tier.put(name)
        a, b = tier.read("a"), tier.read("b")
        for name in "efg":  # the third meets both
            tier.put(name)
        tier.discard("a")
        a.release()
        tier.put("b")
        b.release()
        assert sorted(tier.names()) == ["b", "f", "g"]
        for n in range(4):
            tier.put(f"{n}")
        assert sorted(tier.names()) == ["0", "1", "2", "3"]

    def test_nothing_is_evicted_for_what_cannot_have_room(self) -> None:
        tier = L1(4)
        for name in "abcd":
            tier.put(name)
        with tier.read("a"), tier.read("c"):
            assert tier.reserve("large", 3 * 4096 - 64) is None
            assert sorted(tier.names()) == ["a", "b", "c", "d"]
            assert tier.why_not("name", 3 * 4096 - 64) == "no_memory"

    def test_a_pool_in_pieces_says_so(self) -> None:
        tier = L1(4)
        for name in "abcd":
            tier.put(name)
        with tier.read("b"), tier.read("d"):
            assert tier.reserve("large", 2 * 4096 - 64) is None
            assert sorted(tier.names()) == ["b", "d"]
            assert tier.why_not("name", 2 * 4096 - 64) == "fragmented"
