"""One value on its way into the L2 tiers, and when its put is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio

from tieredkv.results import PutStatus, WriteOutcome

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.writer import TierWriter

__all__ = ["DELETED", "QUOTA", "SUPERSEDED", "Acknowledge", "Put"]

Acknowledge: TypeAlias = Literal["any", "all", "none", "taken"]
"""What a put waits for: as `WriteThrough.require`; or that some tier has taken the value, and will
write it."""

SUPERSEDED: Final = "superseded"
DELETED: Final = "deleted"
QUOTA: Final = "quota"

_STORED: Final = WriteOutcome(PutStatus.STORED)
_PENDING: Final = WriteOutcome(PutStatus.PENDING)


class Put:
    """One value on its way into the L2 tiers.

    Attributes:
        entry: The value.
        in_l1: Whether L1 can take the value; else its memory is of the overflow.
        l1: What L1 says.
        writers: Those of the tiers at the time of the put.
        outcomes: One for each tier, by name.
        leaving_bytes: Memory that comes back when the last tier has answered: L1 has evicted it.
        overtaken: Why the tiers are not to have it any more: its key was put or deleted again
            before they were asked.
    """

    __slots__ = (
        "_acknowledge",
        "_decided",
        "entry",
        "in_l1",
        "l1",
        "leaving_bytes",
        "outcomes",
        "overtaken",
        "writers",
    )

    def __init__(
        self,
        entry: Entry,
        acknowledge: Acknowledge,
        writers: Sequence[TierWriter],
    ) -> None:
        self.entry: Entry = entry
        self.writers: Sequence[TierWriter] = tuple(writers)
        self.in_l1: bool = isinstance(entry.place, int)
        self.l1: WriteOutcome = _STORED
        self.outcomes: dict[str, WriteOutcome] = {writer.tier.name: _PENDING for writer in writers}
        self.leaving_bytes: int = 0
        self.overtaken: str | None = None
        self._acknowledge: Acknowledge = acknowledge
        self._decided = anyio.Event()

    @property
    def acknowledge(self) -> Acknowledge:
        """What the put waits for; what L1 has not taken is written through."""
        waits_on_l1 = self._acknowledge == "taken" and not self.in_l1
        return "any" if waits_on_l1 else self._acknowledge

    @property
    def is_pending(self) -> bool:
        """Whether a tier has yet to answer."""
        return any(outcome.status is PutStatus.PENDING for outcome in self.outcomes.values())

    @property
    def met(self) -> bool:
        """Whether the policy's requirement is met."""
        acknowledge, statuses = self.acknowledge, self._statuses()
        if acknowledge == "none" or not statuses:
            return self.in_l1
        if acknowledge == "all":
            return all(status is PutStatus.STORED for status in statuses)
        if acknowledge == "taken" and PutStatus.PENDING in statuses:
            return True
        return PutStatus.STORED in statuses

    def finish(self, tier: str, outcome: WriteOutcome) -> None:
        """Take a tier's final outcome; wakes the put once no other can change what it waits for."""
        self.outcomes[tier] = outcome
        if self._is_decided():
            self._decided.set()

    async def wait(self) -> None:
        """Wait until the requirement is met or cannot be met any more."""
        if not self._is_decided():
            await self._decided.wait()

    def _is_decided(self) -> bool:
        acknowledge, statuses = self.acknowledge, self._statuses()
        if acknowledge in ("none", "taken") or PutStatus.PENDING not in statuses:
            return True
        if acknowledge == "all":
            return any(s not in (PutStatus.STORED, PutStatus.PENDING) for s in statuses)
        return PutStatus.STORED in statuses

    def _statuses(self) -> list[PutStatus]:
        """Return how far the tiers are that are written with the put."""
        return [self.outcomes[w.tier.name].status for w in self.writers if w.wants(self)]
