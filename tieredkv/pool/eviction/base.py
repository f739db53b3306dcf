"""What every eviction policy promises.

Chains
------
A request's chunks form a chain: one is of use only while all before it are held. So a chain has to
leave from its tail, and in every policy here what was noted last leaves last. A tier therefore
notes a request from its last chunk to its first, in three steps:

1. `EvictionPolicy.access_chain` with the names that it held, head first;
2. `EvictionPolicy.insert` for each new one, the last of the request first where it can choose;
3. `EvictionPolicy.refresh_chain` with all names, so that no chunk outlives those it hangs on.

Names in use
------------
Some of the names that are first to leave cannot: a reader has leased them, a write is under way.
To pass over them anew at each eviction would take time for every one of them. Whoever evicts
*parks* them instead, which takes them out of the order, and puts each back with `unpark` when its
last use ends. A use thus costs one parking at most, and however many names are in use, the next
eviction does not meet them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

from tieredkv.keys import ALL, Tenant, tenant_of

__all__ = ["EvictionPolicy"]


class EvictionPolicy(ABC):
    """Keeps an order over the names that a tier holds. It owns nothing else: no bytes, no I/O.

    Every call but `victims` for one tenant takes constant time, amortised, and never fails for a
    name in whatever state. Nothing here is safe in more than one thread.
    """

    @abstractmethod
    def insert(self, name: str) -> None:
        """Note that a name has come in, after room was made for it.

        One that is held counts as accessed: its value was replaced.
        """

    @abstractmethod
    def access(self, name: str) -> None:
        """Note that a name was read; one that is not held changes nothing.

        A parked one is back in the order, as if it were unparked first.
        """

    @abstractmethod
    def refresh(self, name: str) -> None:
        """Move a name to where it would stand if it were read now, without counting a read.

        One that is parked or not held changes nothing. Policies whose reads move nothing do not
        move it here.
        """

    @abstractmethod
    def remove(self, name: str, *, evicted: bool) -> None:
        """Note that a name has left; one that is not held changes nothing.

        Args:
            name: What has left.
            evicted: `victims` had chosen it. For another reason (deleted, expired) it is forgotten
                altogether, so that it is new when it comes back.
        """

    @abstractmethod
    def park(self, name: str) -> None:
        """Take a held name out of the order until `unpark`: it cannot be evicted now."""

    @abstractmethod
    def unpark(self, name: str) -> None:
        """Put a parked name back, among those that leave first; another changes nothing."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of names held, parked ones included."""

    @abstractmethod
    def _next(self, tenant: Tenant) -> str | None:
        """Return the name to evict first, or None; the same again until something is noted.

        A policy that does not keep tenants apart ignores the tenant; `victims` does the rest.
        """

    def victims(self, tenant: Tenant = ALL) -> Generator[str, None, None]:
        """Iterate over the held names in the order in which they should leave.

        For each name the caller decides before it asks for the next: `remove` it, `park` it, or
        leave it; one that was left is passed over, and is in its place again when the iteration
        ends or is closed. Take no more names than needed, and note nothing else meanwhile.

        Args:
            tenant: Only names of this tenant. That takes time for each name of another tenant that
                would leave before, except from a policy that keeps tenants apart.
        """
        passed: list[str] = []
        offered: str | None = None
        try:
            while (name := self._next(tenant)) is not None:
                if name == offered or not (tenant is ALL or tenant_of(name) == tenant):
                    self.park(name)
                    passed.append(name)
                else:
                    offered = name
                    yield name
        finally:
            for name in reversed(passed):
                self.unpark(name)

    def access_chain(self, names: Sequence[str]) -> None:
        """Note that a request read these names, given head first."""
        for name in reversed(names):
            self.access(name)

    def refresh_chain(self, names: Sequence[str]) -> None:
        """Let these names, given head first, leave after all others and from the tail."""
        for name in reversed(names):
            self.refresh(name)
