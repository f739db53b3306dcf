"""How much of a tier each tenant may fill, and how much it does.

A tenant without a quota of its own has that of `ALL`, and is exempt if there is none. A quota of 0
lets nothing in. In L1 a tenant that is at its quota makes room from its own values; in an L2 tier
its writes are refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from tieredkv.keys import ALL, Tenant, tenant_of
from tieredkv.results import DeleteStatus, GetStatus, PutStatus

if TYPE_CHECKING:
    from tieredkv.backends.base import StoredName

__all__ = ["Account", "QuotaChange", "Quotas"]

QuotaChange: TypeAlias = Callable[[dict[Tenant, int]], Mapping[Tenant, int]]
"""Makes a tier's quotas of those that it has; may change its argument."""


class Quotas:
    """Bytes that tenants may fill.

    Attributes:
        limits: The quotas, by tenant.
    """

    def __init__(self) -> None:
        self.limits: dict[Tenant, int] = {}

    def limit(self, tenant: str) -> int | None:
        """Return a tenant's quota in bytes; None for no limit."""
        return self.limits.get(tenant, self.limits.get(ALL))

    def replace(self, limits: Mapping[Tenant, int]) -> None:
        """Set all quotas in one step."""
        self.limits = dict(limits)

    def copy(self) -> dict[Tenant, int]:
        """Return a detached copy."""
        return dict(self.limits)


class Account:
    """What an L2 tier holds for each tenant, as far as this process can know.

    It is kept while there are quotas: from a listing, if the tier has a space of its own to list,
    and from what this process writes, deletes and looks up. What the tier evicts by itself is
    noticed when its key is looked up the next time.

    Attributes:
        quotas: The quotas.
        usage_bytes: Stored bytes by tenant.
    """

    def __init__(self) -> None:
        self.quotas: Quotas = Quotas()
        self.usage_bytes: dict[str, int] = {}
        self._is_kept = False
        self._stored: dict[str, int] = {}
        self._changed: set[str] | None = None  # names, while the tier is listed
        self._pending: dict[str, int] = {}
        self._turn = anyio.Lock()

    def is_over(self, name: str, nbytes: int) -> bool:
        """Say whether a value of so many stored bytes would exceed its tenant's quota."""
        if not self.quotas.limits:
            return False
        tenant = tenant_of(name)
        limit = self.quotas.limit(tenant)
        if limit is None:
            return False
        used = self.usage_bytes.get(tenant, 0) + self._pending.get(tenant, 0)
        return used - self._stored.get(name, 0) + nbytes > limit

    def expect(self, name: str, change_bytes: int) -> None:
        """Count a write that begins, or with a negative number one that has ended."""
        _add(self._pending, tenant_of(name), change_bytes)

    async def change_quotas(
        self, change: QuotaChange, listing: AsyncIterator[StoredName] | None
    ) -> None:
        """Change the quotas, one call after another; the first lists the tier before they hold.

        Raises:
            TierError: The listing broke off; the quotas are as they were.
        """
        async with self._turn:
            limits = change(self.quotas.copy())
            if limits and not self._is_kept:
                await self._begin(listing)
            self.quotas.replace(limits)
            if not limits:
                self._end()

    def note(self, operation: str, requests: Sequence[Any], outcomes: Sequence[Any]) -> None:
        """Take what came of a call to the tier."""
        if not self._is_kept:
            return
        for request, outcome in zip(requests, outcomes, strict=True):
            match operation, outcome.status:
                case "write", PutStatus.STORED | PutStatus.UNKNOWN:  # which may be there
                    self._set(request.name, request.nbytes)
                case "stat", GetStatus.HIT:
                    self._set(request, outcome.stored_bytes)
                case ("stat", GetStatus.MISS) | (
                    "delete",
                    DeleteStatus.DELETED | DeleteStatus.ABSENT,
                ):
                    self._set(request, 0)
                case _:
                    pass

    async def _begin(self, listing: AsyncIterator[StoredName] | None) -> None:
        self._is_kept = True
        changed: set[str] = set()
        self._changed = changed
        try:
            if listing is not None:
                async for stored in listing:
                    if stored.name not in changed:
                        self._set(stored.name, stored.stored_bytes)
        except BaseException:
            self._end()
            raise
        finally:
            self._changed = None

    def _end(self) -> None:
        self._is_kept = False
        self._stored.clear()
        self.usage_bytes.clear()

    def _set(self, name: str, nbytes: int) -> None:
        if self._changed is not None:
            self._changed.add(name)
        before = self._stored.pop(name, 0)
        if nbytes:
            self._stored[name] = nbytes
        _add(self.usage_bytes, tenant_of(name), nbytes - before)


def _add(totals: dict[str, int], tenant: str, change_bytes: int) -> None:
    """Change a tenant's total; one that is 0 takes no memory."""
    total = totals.get(tenant, 0) + change_bytes
    if total:
        totals[tenant] = total
    else:
        totals.pop(tenant, None)
