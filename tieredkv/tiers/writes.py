"""Writes to the L2 tiers: in order for each key, bounded in memory, acknowledged by policy.

A put hands its entry to every tier and waits until the policy's requirement is met or cannot be met
any more; what still runs then is PENDING and goes on in detached tasks. Until a write has its final
outcome it is a user of the entry, so the entry is not evicted. In each tier the writes of one key
go one after another, and of those that queue up only the last is done: the last put wins.

Until then some tier may hold an older value. So where L1 does not hold the latest one (it went
through the overflow, or was cleared), readers get it from the pending write: `Writes.latest`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from tieredkv.config import MiB, WriteThrough
from tieredkv.errors import StoreClosedError
from tieredkv.frames import now_ms
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    FlushReport,
    GetStatus,
    PutStatus,
    WriteOutcome,
)

if TYPE_CHECKING:
    from tieredkv.pool.arena import Arena, Entry
    from tieredkv.tasks import Detached
    from tieredkv.tiers.framing import Framing
    from tieredkv.tiers.tier import Tier

__all__ = ["Put", "TierWriter", "Writes"]

_PENDING: Final = WriteOutcome(PutStatus.PENDING)

_SUPERSEDED: Final = "superseded"
_DELETED: Final = "deleted"
_OVERTAKEN: Final = frozenset({_SUPERSEDED, _DELETED})

_NOBODY_WAITS: Final = WriteThrough(require="none")

_CALL_BYTES: Final = 64 * MiB  # handed to a backend at once, each call with a deadline of its own


class Put:
    """One value on its way into the L2 tiers.

    Attributes:
        entry: The value.
        in_l1: Whether L1 can take the value; else its memory is of the overflow.
        ttl_s: Time to live, or None.
        writers: Those of the tiers at the time of the put.
        outcomes: One for each tier, by name.
    """

    __slots__ = ("_require", "_settled", "entry", "in_l1", "outcomes", "ttl_s", "writers")

    def __init__(
        self,
        entry: Entry,
        ttl_s: float | None,
        policy: WriteThrough,
        writers: Sequence[TierWriter],
    ) -> None:
        self.entry: Entry = entry
        self.writers: Sequence[TierWriter] = tuple(writers)
        self.in_l1: bool = isinstance(entry.place, int)
        self.ttl_s: float | None = ttl_s
        self.outcomes: dict[str, WriteOutcome] = {writer.tier.name: _PENDING for writer in writers}
        self._require = policy.require
        self._settled = anyio.Event() if self.outcomes else None

    @property
    def is_pending(self) -> bool:
        """Whether a tier has yet to answer."""
        return any(outcome.status is PutStatus.PENDING for outcome in self.outcomes.values())

    @property
    def met(self) -> bool:
        """Whether the policy's requirement is met."""
        if self._require == "none" or not self.outcomes:
            return self.in_l1
        stored = [outcome.status is PutStatus.STORED for outcome in self.outcomes.values()]
        return all(stored) if self._require == "all" else any(stored)

    def finish(self, tier: str, outcome: WriteOutcome) -> None:
        """Take a tier's final outcome; wakes the put once no other can change what it waits for."""
        self.outcomes[tier] = outcome
        statuses = {outcome.status for outcome in self.outcomes.values()}
        lost = bool(statuses - {PutStatus.STORED, PutStatus.PENDING})
        decided = lost if self._require == "all" else PutStatus.STORED in statuses
        if self._settled and (decided or PutStatus.PENDING not in statuses):
            self._settled.set()

    async def wait(self) -> None:
        """Wait until the requirement is met or cannot be met any more."""
        if self._settled and self._require != "none":
            await self._settled.wait()


class TierWriter:
    """The writes and deletes of one tier: those of one key one after another, in order of call.

    Attributes:
        tier: The tier.
        pending_bytes: Payload bytes of its writes that have no outcome yet.
    """

    def __init__(self, tier: Tier, writes: Writes) -> None:
        self.tier = tier
        self.pending_bytes: int = 0
        self._writes = writes
        self._last: dict[str, anyio.Event] = {}  # name → the end of the last that was called
        self._waiting: dict[str, Put] = {}  # the put that waits for its turn

    @property
    def pending(self) -> tuple[str, ...]:
        """Wire names with a write or delete that has no outcome yet."""
        return tuple(self._last)

    def is_busy(self, name: str) -> bool:
        """Say whether a write or delete of a name has no outcome yet."""
        return name in self._last

    def accept(self, put: Put) -> None:
        """Become a user of the put's entry, until its outcome is final."""
        put.entry.users += 1
        self.pending_bytes += put.entry.nbytes

    def start(self, puts: Iterable[Put]) -> None:
        """Start accepted writes; one whose key is busy waits, and supersedes one that waits."""
        batch: list[tuple[Put, anyio.Event]] = []
        batch_bytes = 0
        for put in puts:
            name = put.entry.name
            before, end = self._take_turn(name, _SUPERSEDED)
            if before is not None:
                self._waiting[name] = put
                self._writes.detached.spawn(self._write_later, (before, put, end))
                continue
            batch.append((put, end))
            batch_bytes += put.entry.nbytes
            if batch_bytes >= _CALL_BYTES:
                self._writes.detached.spawn(self._write, batch)
                batch, batch_bytes = [], 0
        if batch:
            self._writes.detached.spawn(self._write, batch)

    async def delete_many(
        self, names: Sequence[str], generation: int | None = None
    ) -> list[DeleteOutcome]:
        """Delete after what runs for these keys, and instead of what waits; not to be cancelled.

        Args:
            names: Distinct wire names.
            generation: That of the delete; None if what a reader may get stays as it is.
        """
        turns = [(name, *self._take_turn(name, _DELETED)) for name in names]
        try:
            for _, before, _ in turns:
                if before is not None:
                    await before.wait()
            outcomes = await self.tier.delete_many(names)
            if generation is not None:
                for name, outcome in zip(names, outcomes, strict=True):
                    self._fence_delete(name, generation, outcome)
            return outcomes
        finally:
            for name, _, end in turns:
                self._end_turn(name, end)

    async def _write_later(self, turn: tuple[anyio.Event, Put, anyio.Event]) -> None:
        before, put, end = turn
        await before.wait()
        name = put.entry.name
        if self._waiting.get(name) is put:
            del self._waiting[name]
            await self._write([(put, end)])
        else:  # overtaken, and finished then
            self._end_turn(name, end)

    async def _write(self, batch: Sequence[tuple[Put, anyio.Event]]) -> None:
        arena, framing = self._writes.arena, self._writes.framing
        lost = StoreClosedError("the event loop ended before the write had")
        outcomes = [WriteOutcome(PutStatus.UNKNOWN, None, lost)] * len(batch)
        try:
            requests = [
                framing.write(put.entry, arena.writable(put.entry), put.ttl_s) for put, _ in batch
            ]
            outcomes = await self.tier.write_many(requests)
            del requests
        finally:
            for (put, end), outcome in zip(batch, outcomes, strict=True):
                self._finish(put, outcome)
                self._end_turn(put.entry.name, end)

    def _take_turn(self, name: str, reason: str) -> tuple[anyio.Event | None, anyio.Event]:
        """Line up behind the last call for a name; a put that still waits is SKIPPED."""
        overtaken = self._waiting.pop(name, None)
        if overtaken is not None:
            self._finish(overtaken, WriteOutcome(PutStatus.SKIPPED, reason))
        end = anyio.Event()
        before = self._last.get(name)
        self._last[name] = end
        return before, end

    def _end_turn(self, name: str, end: anyio.Event) -> None:
        end.set()
        if self._last.get(name) is end:
            del self._last[name]
        self._writes.wake()

    def refuse(self, put: Put, reason: str) -> None:
        """Take a put that this tier is not to have: it ends there as SKIPPED."""
        self.tier.counts.count("write", reason)
        self._settle(put, WriteOutcome(PutStatus.SKIPPED, reason))

    def _settle(self, put: Put, outcome: WriteOutcome) -> None:
        """Give a put its final outcome, and keep what it has not replaced from readers."""
        name, generation = put.entry.name, put.entry.generation
        if outcome.status is PutStatus.STORED:
            self.tier.fences.carried_out(name, generation, GetStatus.HIT)
        elif outcome.status is PutStatus.UNKNOWN:
            self.tier.fences.unknown(name, generation, GetStatus.UNKNOWN)
        elif outcome.reason not in _OVERTAKEN:  # else the later one sees to it
            self.tier.fences.missed(name, generation)
        put.finish(self.tier.name, outcome)

    def _fence_delete(self, name: str, generation: int, outcome: DeleteOutcome) -> None:
        match outcome.status:
            case DeleteStatus.DELETED | DeleteStatus.ABSENT:
                self.tier.fences.carried_out(name, generation, GetStatus.MISS)
            case DeleteStatus.UNKNOWN:
                self.tier.fences.unknown(name, generation, GetStatus.MISS)
            case _:
                self.tier.fences.missed(name, generation)

    def _finish(self, put: Put, outcome: WriteOutcome) -> None:
        self._settle(put, outcome)
        self._writes.settle(put)
        self.pending_bytes -= put.entry.nbytes
        self._writes.arena.drop(put.entry)
        self._writes.wake()


class Writes:
    """The L2 tiers of a store, as a writer sees them.

    Attributes:
        arena: Where the entries lie.
        framing: How values are stored.
        detached: Where the writes run.
        writers: One a tier.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        arena: Arena,
        framing: Framing,
        detached: Detached,
        *,
        policy: WriteThrough,
        max_pending_bytes: int,
    ) -> None:
        self.arena = arena
        self.framing = framing
        self.detached = detached
        self.writers: list[TierWriter] = [TierWriter(tier, self) for tier in tiers]
        self._policy = policy
        self._max_pending_bytes = max_pending_bytes
        self._latest: dict[str, Put] = {}  # those with a pending write
        self._changed = anyio.Event()

    def put(self, entry: Entry, ttl_s: float | None) -> Put:
        """Return the put of an entry, not submitted yet; the caller stays a user of the entry."""
        return Put(entry, ttl_s, self._policy, self.writers)

    async def submit(self, puts: Iterable[Put]) -> None:
        """Hand puts to the tiers.

        A tier whose share of pending bytes is used up is waited for, at most for its deadline, if
        the policy needs it; else the put is SKIPPED("busy") there.
        """
        accepted: dict[TierWriter, list[Put]] = {}

        def start() -> None:
            for writer, writes in accepted.items():
                writer.start(writes)
                writes.clear()

        for put in puts:
            able = [writer for writer in put.writers if self._refusal(writer, put) is None]
            takers = [writer for writer in able if self._has_room(writer, put)]
            if not self._enough(takers, able):
                start()
                takers = await self._wait_for_room(put, able)
            if takers:
                self._latest[put.entry.name] = put
            else:
                self._latest.pop(put.entry.name, None)  # what is pending is older
            for writer in put.writers:
                if writer in takers:
                    writer.accept(put)
                    accepted.setdefault(writer, []).append(put)
                else:
                    writer.refuse(put, self._refusal(writer, put) or "busy")
        start()

    def back_fill(self, entry: Entry, tiers: Iterable[Tier]) -> None:
        """Write a value that came from a tier below to tiers that lack it; nobody waits for it.

        Where another write of the key is under way, or too much is pending, it is left out.
        """
        ttl_s = max(0.001, (entry.expires_ms - now_ms()) / 1000) if entry.expires_ms else None
        for tier in tiers:
            writer = self.of(tier.name)
            if writer is None or tier.backend.write_on != "put" or writer.is_busy(entry.name):
                continue
            put = Put(entry, ttl_s, _NOBODY_WAITS, [writer])
            if self._refusal(writer, put) is None and self._has_room(writer, put):
                tier.counts.count("write", "back_fill")
                writer.accept(put)
                writer.start([put])

    def latest(self, name: str) -> Entry | None:
        """Return the last value put under a name if some tier may still hold an older one."""
        put = self._latest.get(name)
        return None if put is None else put.entry

    def settle(self, put: Put) -> None:
        """Let readers ask the tiers again, if the outcomes of this put are final."""
        if self._latest.get(put.entry.name) is put and not put.is_pending:
            del self._latest[put.entry.name]

    def forget(self, names: Iterable[str]) -> None:
        """Note that names are deleted: what is pending is no longer their value."""
        for name in names:
            self._latest.pop(name, None)

    def add(self, tier: Tier, place: int) -> None:
        """Write to a further tier, from the next put on."""
        self.writers.insert(place, TierWriter(tier, self))

    def of(self, name: str) -> TierWriter | None:
        """Return the writer of a tier."""
        return next((writer for writer in self.writers if writer.tier.name == name), None)

    def remove(self, tier: Tier) -> None:
        """Forget a tier that has nothing pending."""
        self.writers[:] = [writer for writer in self.writers if writer.tier is not tier]

    def pending(self, tier: Tier) -> tuple[str, ...]:
        """Return the wire names with a write or delete of a tier that has no outcome yet."""
        return next((w.pending for w in self.writers if w.tier is tier), ())

    async def flush(self, tier: Tier | None = None) -> None:
        """Wait until no write is pending, in one tier or in all."""
        while any(writer.pending for writer in self.writers if tier in (None, writer.tier)):
            await self._changed.wait()

    def report(self) -> FlushReport:
        """Return what is pending now."""
        pending = {writer.tier.name: writer.pending for writer in self.writers}
        return FlushReport({tier: names for tier, names in pending.items() if names})

    def wake(self) -> None:
        """Let those look again who wait for room or for the end of writes."""
        self._changed.set()
        self._changed = anyio.Event()

    async def _wait_for_room(self, put: Put, able: Sequence[TierWriter]) -> list[TierWriter]:
        deadline_s = max(writer.tier.backend.deadline_s for writer in able)
        takers: list[TierWriter] = []
        with anyio.move_on_after(deadline_s):
            while not self._enough(takers, able):
                await self._changed.wait()
                takers = [writer for writer in able if self._has_room(writer, put)]
        return takers

    def _refusal(self, writer: TierWriter, put: Put) -> str | None:
        """Return why a tier is not to have a put, if so."""
        if writer.tier.is_draining:
            return "draining"
        native = writer.tier.backend.capabilities.native_ttl
        if put.ttl_s is not None and not self.framing.framed and not native:
            return "ttl_unsupported"  # a bare value cannot say when it expires
        return None

    def _has_room(self, writer: TierWriter, put: Put) -> bool:
        # Each tier has its share, so that one that hangs does not take the others' room.
        share_bytes = self._max_pending_bytes // max(len(self.writers), 1)
        pending = writer.pending_bytes
        return pending == 0 or pending + put.entry.nbytes <= share_bytes

    def _enough(self, takers: Collection[TierWriter], able: Collection[TierWriter]) -> bool:
        match self._policy.require:
            case "all":
                return len(takers) == len(able)
            case "any":
                return bool(takers) or not able
            case "none":
                return True
