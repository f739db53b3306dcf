"""What every eviction policy has to do, as tests to inherit and as a state machine.

Subclass `PolicyConformance` in a test module and say how a policy is made; subclass `PolicyMachine`
for any order of calls, with an *oracle* if the exact order of leaving is to be checked, too. An
oracle is a second, plain and slow implementation that shares no code with the policy. Needs
hypothesis and pytest.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final, Literal, Protocol, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tieredkv.keys import ALL, ObjectKey, Tenant, tenant_of
from tieredkv.pool.eviction import EvictionPolicy

__all__ = ["PolicyConformance", "PolicyMachine", "PolicyOracle"]

_CHAIN: Final = tuple(f"chunk-{number}" for number in range(10))
_TENANTS: Final = ("", "red", "blue")
_NAMES: Final = tuple(
    ObjectKey("model", 0, bytes([number]), cache_salt=tenant).wire_name
    for number in range(6)
    for tenant in _TENANTS
)

Verdict: TypeAlias = Literal["remove", "park", "leave"]
"""What a caller does with a victim."""


class PolicyConformance:
    """The contract of `EvictionPolicy`, one behaviour a test."""

    def make_policy(self) -> EvictionPolicy:
        """Return a new policy that holds nothing; to be overridden."""
        raise NotImplementedError

    def holding(self, *names: str) -> EvictionPolicy:
        """Return a policy into which these names have come, in this order."""
        policy = self.make_policy()
        for name in names:
            policy.insert(name)
        return policy

    def test_a_new_policy_holds_nothing(self) -> None:
        policy = self.make_policy()
        assert len(policy) == 0
        assert list(policy.victims()) == []

    def test_every_held_name_is_offered_once(self) -> None:
        policy = self.holding(*_CHAIN)
        assert len(policy) == len(_CHAIN)
        assert sorted(policy.victims()) == sorted(_CHAIN)

    def test_a_name_that_comes_in_again_is_held_once(self) -> None:
        policy = self.holding("a", "b", "a")
        assert len(policy) == 2
        assert sorted(policy.victims()) == ["a", "b"]

    def test_a_removed_name_is_not_offered(self) -> None:
        policy = self.holding("a", "b", "c", "d")
        policy.remove("a", evicted=False)
        policy.remove("d", evicted=True)
        assert len(policy) == 2
        assert sorted(policy.victims()) == ["b", "c"]

    def test_a_name_that_left_can_come_back(self) -> None:
        policy = self.holding("a", "b")
        for evicted in (True, False):
            policy.remove("a", evicted=evicted)
            policy.insert("a")
            assert sorted(policy.victims()) == ["a", "b"]

    def test_a_name_that_is_not_held_changes_nothing(self) -> None:
        policy = self.holding("a", "b", "c")
        policy.access("x")
        policy.refresh("x")
        policy.park("x")
        policy.unpark("x")
        policy.remove("x", evicted=True)
        policy.remove("x", evicted=False)
        assert len(policy) == 3
        assert list(policy.victims()) == ["a", "b", "c"]

    def test_names_that_are_left_keep_their_places(self) -> None:
        policy = self.holding(*_CHAIN)
        assert list(policy.victims()) == list(policy.victims())

    def test_an_iteration_that_is_closed_early_leaves_all_names_in_place(self) -> None:
        policy = self.holding("a", "b", "c")
        iteration = policy.victims()
        assert (next(iteration), next(iteration)) == ("a", "b")
        iteration.close()
        assert list(policy.victims()) == ["a", "b", "c"]

    def test_victims_may_be_removed_while_one_iterates(self) -> None:
        policy = self.holding(*_CHAIN)
        for name in policy.victims():
            policy.remove(name, evicted=True)
        assert len(policy) == 0

    def test_a_parked_name_is_held_but_not_offered(self) -> None:
        policy = self.holding("a", "b", "c")
        policy.park("a")
        assert len(policy) == 3
        assert list(policy.victims()) == ["b", "c"]

    def test_victims_may_be_parked_while_one_iterates(self) -> None:
        policy = self.holding(*_CHAIN)
        for name in policy.victims():
            policy.park(name)
        assert list(policy.victims()) == []
        assert len(policy) == len(_CHAIN)

    def test_an_unparked_name_is_where_it_was(self) -> None:
        policy = self.holding("a", "b", "c")
        policy.park("a")
        policy.unpark("a")
        assert list(policy.victims()) == ["a", "b", "c"]

    def test_a_parked_name_that_is_read_is_offered_again(self) -> None:
        policy = self.holding("a", "b", "c")
        policy.park("a")
        policy.access("a")
        policy.unpark("a")
        assert sorted(policy.victims()) == ["a", "b", "c"]

    def test_a_parked_name_that_comes_in_again_is_held_once(self) -> None:
        policy = self.holding("a", "b")
        policy.park("a")
        policy.insert("a")
        assert len(policy) == 2
        assert sorted(policy.victims()) == ["a", "b"]

    def test_a_parked_name_can_be_removed(self) -> None:
        policy = self.holding("a", "b")
        policy.park("a")
        policy.remove("a", evicted=False)
        policy.unpark("a")
        assert len(policy) == 1
        assert list(policy.victims()) == ["b"]

    def test_victims_of_a_tenant_are_its_own_names(self) -> None:
        policy = self.holding(*_NAMES)
        for tenant in _TENANTS:
            own = [name for name in _NAMES if tenant_of(name) == tenant]
            assert list(policy.victims(tenant)) == own
        assert list(policy.victims("green")) == []
        assert sorted(policy.victims()) == sorted(_NAMES)

    def test_a_chain_leaves_from_its_tail(self) -> None:
        policy = self.holding(*reversed(_CHAIN))
        assert list(policy.victims()) == list(reversed(_CHAIN))

    def test_a_chain_that_was_read_leaves_from_its_tail(self) -> None:
        policy = self.holding(*reversed(_CHAIN))
        policy.access_chain(_CHAIN)
        policy.refresh_chain(_CHAIN)
        assert list(policy.victims()) == list(reversed(_CHAIN))

    def test_new_chunks_leave_before_those_that_they_hang_on(self) -> None:
        prefix, new = _CHAIN[:6], _CHAIN[6:]
        policy = self.holding(*reversed(prefix))
        policy.access_chain(prefix)
        for name in reversed(new):
            policy.insert(name)
        policy.refresh_chain(prefix)
        assert list(policy.victims()) == list(reversed(_CHAIN))


class PolicyOracle(Protocol):
    """What decides who should leave: `EvictionPolicy` in its plainest form.

    The machine tells it of every call; a name that an iteration passes over is parked for it, and
    unparked when the iteration ends.
    """

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`."""

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""

    def park(self, name: str) -> None:
        """See `EvictionPolicy.park`."""

    def unpark(self, name: str) -> None:
        """See `EvictionPolicy.unpark`."""

    def choose(self) -> str | None:
        """Return the one name to evict first, or None."""


_names = st.sampled_from(_NAMES)
_chains = st.lists(_names, min_size=1, max_size=8, unique=True)
_verdicts = st.lists(st.sampled_from(("remove", "remove", "park", "leave")), min_size=1, max_size=6)


class PolicyMachine(RuleBasedStateMachine):
    """Names come, are read, parked and evicted in any order; who is held is never in doubt."""

    def make_policy(self) -> EvictionPolicy:
        """Return a new policy that holds nothing; to be overridden."""
        raise NotImplementedError

    def make_oracle(self) -> PolicyOracle | None:
        """Return what knows the order in which names should leave, if anything does."""
        return None

    @initialize()
    def make(self) -> None:
        """Begin with nothing."""
        self.policy: EvictionPolicy = self.make_policy()
        self.oracle: PolicyOracle | None = self.make_oracle()
        self.held: set[str] = set()
        self.parked: set[str] = set()

    @rule(names=_chains)
    def insert(self, names: list[str]) -> None:
        """New names come in, held ones are replaced."""
        for name in names:
            self.policy.insert(name)
            if self.oracle is not None:
                self.oracle.insert(name)
        self.held.update(names)
        self.parked.difference_update(names)

    @rule(names=_chains)
    def read(self, names: list[str]) -> None:
        """A request reads a chain of names, held or not."""
        self.policy.access_chain(names)
        if self.oracle is not None:
            for name in reversed(names):
                self.oracle.access(name)
        self.parked.difference_update(names)

    @rule(names=_chains)
    def refresh(self, names: list[str]) -> None:
        """A chain of names, held or not, is refreshed."""
        self.policy.refresh_chain(names)
        if self.oracle is not None:
            for name in reversed(names):
                self.oracle.refresh(name)

    @rule(name=_names)
    def delete(self, name: str) -> None:
        """A name leaves, but not for want of room."""
        self.policy.remove(name, evicted=False)
        if self.oracle is not None:
            self.oracle.remove(name, evicted=False)
        self.held.discard(name)
        self.parked.discard(name)

    @rule(name=_names)
    def unpark(self, name: str) -> None:
        """The last use of a name ends."""
        self.policy.unpark(name)
        if self.oracle is not None:
            self.oracle.unpark(name)
        self.parked.discard(name)

    @rule(verdicts=_verdicts)
    def evict(self, verdicts: list[Verdict]) -> None:
        """Room is made; some of those who should leave cannot."""
        left = self._evict(verdicts, ALL)
        if self.oracle is not None:
            for name in reversed(left):
                self.oracle.unpark(name)

    @precondition(lambda self: self.oracle is None)  # which would have to know who is passed over
    @rule(verdicts=_verdicts, tenant=st.sampled_from(_TENANTS))
    def evict_of_a_tenant(self, verdicts: list[Verdict], tenant: str) -> None:
        """A tenant makes room; some of its names that should leave cannot."""
        self._evict(verdicts, tenant)

    def _evict(self, verdicts: list[Verdict], tenant: Tenant) -> list[str]:
        """Return the names that were left."""
        left: list[str] = []
        with closing(self.policy.victims(tenant)) as iteration:
            for verdict in verdicts:
                name = next(iteration, None)
                if self.oracle is not None:
                    for passed in left[-1:]:  # it is passed over now that one asks for the next
                        self.oracle.park(passed)
                    assert name == self.oracle.choose()
                if name is None:
                    break
                assert name in self.held - self.parked
                assert name not in left
                assert tenant is ALL or tenant_of(name) == tenant
                if verdict == "leave":
                    left.append(name)
                else:
                    self._take(name, verdict)
        return left

    def _take(self, name: str, verdict: Verdict) -> None:
        if verdict == "park":
            self.policy.park(name)
            self.parked.add(name)
        else:
            self.policy.remove(name, evicted=True)
            self.held.remove(name)
        if self.oracle is not None:
            if verdict == "park":
                self.oracle.park(name)
            else:
                self.oracle.remove(name, evicted=True)

    @invariant()
    def as_many_names_are_held_as_came_and_did_not_leave(self) -> None:
        """Parked names count."""
        assert len(self.policy) == len(self.held)

    def teardown(self) -> None:
        """Whatever happened, all names that are not parked can leave."""
        if hasattr(self, "policy"):
            left = list(self.policy.victims())
            assert len(left) == len(set(left))
            assert set(left) == self.held - self.parked
