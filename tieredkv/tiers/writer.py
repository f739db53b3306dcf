"""The writes and deletes of one L2 tier, in order for each key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from tieredkv.config import MiB
from tieredkv.errors import StoreClosedError
from tieredkv.results import DeleteOutcome, DeleteStatus, GetStatus, PutStatus, WriteOutcome
from tieredkv.tiers.put import DELETED, QUOTA, SUPERSEDED, Put

if TYPE_CHECKING:
    from tieredkv.tiers.tier import Tier
    from tieredkv.tiers.writes import Writes

__all__ = ["CALL_BYTES", "TierWriter", "Turn"]

CALL_BYTES: Final = 64 * MiB  # handed to a backend at once, each call with a deadline of its own

_OVERTAKEN: Final = frozenset({SUPERSEDED, DELETED})
_MOST_FAILED: Final = 10_000


class Turn:
    """A write's place in the order of its key.

    Attributes:
        put: What is to be written.
        before: The end of what runs for its key; None if nothing does.
        end: Its own end.
        due: When it is to begin at the earliest, by the event loop's clock.
        tries: How often it was tried.
        unknown: The outcome of a try that may have had an effect.
    """

    __slots__ = ("before", "due", "end", "put", "tries", "unknown")

    def __init__(self, put: Put, before: anyio.Event | None, end: anyio.Event) -> None:
        self.put: Put = put
        self.before: anyio.Event | None = before
        self.end: anyio.Event = end
        self.due: float = 0.0
        self.tries: int = 0
        self.unknown: WriteOutcome | None = None


class TierWriter:
    """The writes and deletes of one tier: those of one key one after another, in order of call.

    Attributes:
        tier: The tier.
        pending_bytes: Payload bytes of its writes that have no outcome yet.
        limit_bytes: Most bytes of such writes, over all tiers like it.
        failed: The latest writes that ended without being stored, by name, but for those that were
            overtaken; see `FlushReport`.
        urgent: How many wait for its writes to end.
    """

    def __init__(self, tier: Tier, writes: Writes, limit_bytes: int) -> None:
        self.tier = tier
        self.pending_bytes: int = 0
        self.limit_bytes: int = limit_bytes
        self.failed: dict[str, WriteOutcome] = {}
        self.urgent: int = 0
        self._writes = writes
        self._is_abandoned = False
        self._last: dict[str, anyio.Event] = {}  # name → the end of the last that was called
        self._waiting: dict[str, Turn] = {}  # the put that waits for its turn

    @property
    def pending(self) -> tuple[str, ...]:
        """Wire names with a write or delete that has no outcome yet."""
        return tuple(self._last)

    @property
    def pending_writes(self) -> int:
        """How many names that are."""
        return len(self._last)

    def has_waiting(self, name: str) -> bool:
        """Say whether a put of a name waits for its turn."""
        return name in self._waiting

    def wants(self, put: Put) -> bool:
        """Say whether the tier is written with a put; what L1 cannot take leaves it at once."""
        write_on = self.tier.backend.write_on
        return write_on == "put" or (write_on == "evict" and not put.in_l1)

    def accept(self, put: Put) -> None:
        """Become a user of the put's entry, until its outcome is final."""
        put.entry.users += 1
        self.pending_bytes += put.entry.nbytes
        self.tier.account.expect(put.entry.name, self._writes.stored_bytes(put))

    def start(self, puts: Iterable[Put]) -> None:
        """Start accepted writes; one whose key is busy waits, and supersedes one that waits."""
        batch: list[Turn] = []
        batch_bytes = 0
        for put in puts:
            turn = self._turn(put)
            if turn.before is not None:
                self._waiting[put.entry.name] = turn
                self._writes.detached.spawn(self._write_later, turn)
                continue
            batch.append(turn)
            batch_bytes += put.entry.nbytes
            if batch_bytes >= CALL_BYTES:
                self._writes.detached.spawn(self._write, batch)
                batch, batch_bytes = [], 0
        if batch:
            self._writes.detached.spawn(self._write, batch)

    def stir(self) -> None:
        """Look again at what waits: it may have become urgent."""

    def abandon(self) -> None:
        """Give up what has not begun, for good: the store closes."""
        self._is_abandoned = True
        for name, turn in tuple(self._waiting.items()):
            del self._waiting[name]
            self._finish(turn.put, turn.unknown or WriteOutcome(PutStatus.SKIPPED, "closed"))
            self._end_turn(name, turn.end)

    def deleting(
        self, names: Sequence[str], generation: int
    ) -> Callable[[], Coroutine[Any, Any, list[DeleteOutcome]]]:
        """Take the turns of a delete: after what runs for these keys, instead of what waits.

        Args:
            names: Distinct wire names.
            generation: That of the delete.

        Returns:
            What carries it out; to be called once, soon, and not to be cancelled.
        """
        turns = [(name, *self._take_turn(name, DELETED)) for name in names]
        return partial(self._delete, turns, generation)

    async def _delete(
        self, turns: Sequence[tuple[str, anyio.Event | None, anyio.Event]], generation: int
    ) -> list[DeleteOutcome]:
        names = [name for name, _, _ in turns]
        try:
            for _, before, _ in turns:
                if before is not None:
                    await before.wait()
            outcomes = await self.tier.delete_many(names)
            for name, outcome in zip(names, outcomes, strict=True):
                self._fence_delete(name, generation, outcome)
            return outcomes
        finally:
            for name, _, end in turns:
                self._end_turn(name, end)

    def drop(self, name: str) -> None:
        """Begin to delete a copy that failed its check, unless it is about to be replaced.

        It is pending at once: who waits for the writes waits for it. What a reader may get stays
        as it is.
        """
        if name not in self._last:
            _, end = self._take_turn(name, DELETED)
            self._writes.detached.spawn(self._drop, (name, end))

    async def _drop(self, turn: tuple[str, anyio.Event]) -> None:
        name, end = turn
        try:
            await self.tier.delete_many([name])
        finally:
            self._end_turn(name, end)

    async def _write_later(self, turn: Turn) -> None:
        if turn.before is not None:
            await turn.before.wait()
        if self._waiting.get(turn.put.entry.name) is turn:  # else it was overtaken
            del self._waiting[turn.put.entry.name]
            await self._write([turn])

    async def _write(self, batch: Sequence[Turn]) -> None:
        arena, framing = self._writes.arena, self._writes.framing
        lost = StoreClosedError("the event loop ended before the write had")
        outcomes = [WriteOutcome(PutStatus.UNKNOWN, None, lost)] * len(batch)
        try:
            puts = [turn.put for turn in batch]
            requests = [framing.write(put.entry, arena.writable(put.entry)) for put in puts]
            outcomes = await self.tier.write_many(requests)
            del requests
        finally:
            for turn, outcome in zip(batch, outcomes, strict=True):
                self._written(turn, outcome)

    def _written(self, turn: Turn, outcome: WriteOutcome) -> None:
        """Take what came of a write that was begun."""
        self._finish(turn.put, outcome)
        self._end_turn(turn.put.entry.name, turn.end)

    def _turn(self, put: Put) -> Turn:
        return Turn(put, *self._take_turn(put.entry.name, SUPERSEDED))

    def _take_turn(self, name: str, reason: str) -> tuple[anyio.Event | None, anyio.Event]:
        """Line up behind the last call for a name, in the place of a put that still waits.

        That put is SKIPPED, unless an earlier try of its write may have had an effect.
        """
        overtaken = self._waiting.pop(name, None)
        before = self._last.get(name)
        if overtaken is not None:
            before = overtaken.before
            skipped = WriteOutcome(PutStatus.SKIPPED, reason)
            self._finish(overtaken.put, overtaken.unknown or skipped)
        end = self._last[name] = anyio.Event()
        return before, end

    def _end_turn(self, name: str, end: anyio.Event) -> None:
        end.set()
        if self._last.get(name) is end:
            del self._last[name]
        self._writes.wake()

    def refuse(self, put: Put, reason: str) -> None:
        """Take a put that this tier is not to have: it ends there, as SKIPPED or REJECTED."""
        self.tier.counts.count("write", reason)
        status = PutStatus.REJECTED if reason == QUOTA else PutStatus.SKIPPED
        self._settle(put, WriteOutcome(status, reason))

    def _settle(self, put: Put, outcome: WriteOutcome) -> None:
        """Give a put its final outcome, and keep what it has not replaced from readers."""
        name, generation = put.entry.name, put.entry.generation
        if outcome.status is PutStatus.STORED:
            self.tier.fences.carried_out(name, generation, GetStatus.HIT, put.entry.nbytes)
        elif outcome.status is PutStatus.UNKNOWN:
            self.tier.fences.unknown(name, generation, GetStatus.UNKNOWN)
        elif outcome.reason not in _OVERTAKEN:  # else the later one sees to it
            self.tier.fences.missed(name, generation)
        put.finish(self.tier.name, outcome)

    def _fence_delete(self, name: str, generation: int, outcome: DeleteOutcome) -> None:
        match outcome.status:
            case DeleteStatus.DELETED | DeleteStatus.ABSENT:
                self.failed.pop(name, None)
                self.tier.fences.carried_out(name, generation, GetStatus.MISS)
            case DeleteStatus.UNKNOWN:
                self.tier.fences.unknown(name, generation, GetStatus.MISS)
            case _:
                self.tier.fences.missed(name, generation)

    def _finish(self, put: Put, outcome: WriteOutcome) -> None:
        self._settle(put, outcome)
        self._note_failure(put.entry.name, outcome)
        self._writes.settle(put)
        self.pending_bytes -= put.entry.nbytes
        self.tier.account.expect(put.entry.name, -self._writes.stored_bytes(put))
        self._writes.arena.drop(put.entry)
        self._writes.wake()

    def _note_failure(self, name: str, outcome: WriteOutcome) -> None:
        if outcome.reason in _OVERTAKEN:
            return
        self.failed.pop(name, None)
        if outcome.status is not PutStatus.STORED:
            self.failed[name] = outcome
            if len(self.failed) > _MOST_FAILED:
                del self.failed[next(iter(self.failed))]
