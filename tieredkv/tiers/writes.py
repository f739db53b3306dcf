"""Writes to the L2 tiers: in order for each key, bounded in memory, acknowledged by policy.

A put hands its entry to every tier and waits until the policy's requirement is met or cannot be met
any more; what still runs then is PENDING and goes on in detached tasks. Until a write has its final
outcome it is a user of the entry, so the entry is not evicted. In each tier the writes of one key
go one after another, and of those that queue up only the last is done: the last put wins.

Until then some tier may hold an older value. So where L1 does not hold the latest one (it went
through the overflow, or was cleared), readers get it from the pending write: `Writes.latest`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tieredkv.config import WriteBack
from tieredkv.results import FlushReport
from tieredkv.tiers.put import DELETED, QUOTA, SUPERSEDED, Acknowledge, Put
from tieredkv.tiers.writeback import BackWriter
from tieredkv.tiers.writer import TierWriter

if TYPE_CHECKING:
    from tieredkv.config import WritePolicy
    from tieredkv.pool.arena import Arena, Entry
    from tieredkv.tasks import Detached
    from tieredkv.tiers.framing import Framing
    from tieredkv.tiers.tier import Tier

__all__ = ["Writes"]


class Writes:
    """The L2 tiers of a store, as a writer sees them.

    Attributes:
        arena: Where the entries lie.
        framing: How values are stored.
        detached: Where the writes run.
        writers: One a tier.
        leaving_bytes: Memory of values that L1 has evicted and that are being written.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        arena: Arena,
        framing: Framing,
        detached: Detached,
        *,
        policy: WritePolicy,
        max_pending_bytes: int,
    ) -> None:
        self.arena = arena
        self.framing = framing
        self.detached = detached
        self._policy = policy
        self._acknowledge: Acknowledge = (
            "taken" if isinstance(policy, WriteBack) else policy.require
        )
        self._max_pending_bytes = max_pending_bytes
        self.writers: list[TierWriter] = [self._writer(tier) for tier in tiers]
        self.leaving_bytes: int = 0
        self._latest: dict[str, Put] = {}  # those with a pending write
        self._unsubmitted: dict[str, Put] = {}  # L1 or the overflow has it; no tier was asked
        self._changed = anyio.Event()

    def put(self, entry: Entry) -> Put:
        """Return the put of an entry, not submitted yet; the caller stays a user of the entry."""
        return Put(entry, self._acknowledge, self.writers)

    def commit(self, put: Put) -> None:
        """Note that a put is the latest of its key; an earlier one is not submitted any more."""
        self._overtake(put.entry.name, SUPERSEDED)
        self._unsubmitted[put.entry.name] = put

    def withdraw(self, put: Put) -> None:
        """Give up a put that was not submitted, for its caller was cancelled."""
        if self._unsubmitted.get(put.entry.name) is put:
            del self._unsubmitted[put.entry.name]
            self._latest.pop(put.entry.name, None)  # what is pending is older
            for writer in put.writers:
                writer.refuse(put, "cancelled")
        self.arena.drop(put.entry)

    async def submit(self, puts: Iterable[Put]) -> None:
        """Hand puts to the tiers.

        A tier whose share of pending bytes is used up is waited for, at most for its deadline, if
        the policy needs it; else the put is SKIPPED("busy") there. A put whose key is put or
        deleted again meanwhile is SKIPPED everywhere.
        """
        accepted: dict[TierWriter, list[Put]] = {}

        def start() -> None:
            for writer, writes in accepted.items():
                writer.start(writes)
                writes.clear()

        for put in puts:
            takers, able = self._choose(put)
            if not self._enough(put, takers, able):
                start()
                takers = await self._wait_for_room(put)
            name = put.entry.name
            if put.overtaken is not None:
                takers = []
            else:
                self._unsubmitted.pop(name, None)
                if takers:
                    self._latest[name] = put
                else:
                    self._latest.pop(name, None)  # what is pending is older
            for writer in put.writers:
                if writer in takers:
                    writer.accept(put)
                    accepted.setdefault(writer, []).append(put)
                else:
                    writer.refuse(put, put.overtaken or self._reason(writer, put))
        start()

    def back_fill(self, entry: Entry, tiers: Iterable[Tier]) -> None:
        """Write a value that came from a tier below to tiers that lack it; nobody waits for it.

        Where another write of the key waits, or too much is pending, it is left out.
        """
        for tier in tiers:
            writer = self.of(tier.name)
            if writer is None or tier.backend.write_on != "put" or writer.has_waiting(entry.name):
                continue
            put = Put(entry, "none", [writer])
            if self.refusal(writer, put) is None and self.has_room(writer, put):
                tier.counts.count("write", "back_fill")
                writer.accept(put)
                writer.start([put])

    def latest(self, name: str) -> Entry | None:
        """Return the last value put under a name if some tier may still hold an older one."""
        put = self._unsubmitted.get(name) or self._latest.get(name)
        return None if put is None else put.entry

    def watch(self, put: Put) -> None:
        """Let readers get this value, if L1 has it no more, until its tiers have it.

        A put of it that some tier has yet to carry out sees to that longer.
        """
        self._latest.setdefault(put.entry.name, put)

    def settle(self, put: Put) -> None:
        """Let readers ask the tiers again, if the outcomes of this put are final."""
        if put.is_pending:
            return
        self.leaving_bytes -= put.leaving_bytes
        if self._latest.get(put.entry.name) is put:
            del self._latest[put.entry.name]

    def forget(self, names: Iterable[str], generation: int) -> None:
        """Note that a delete of these names begins: no value of theirs is to be read any more."""
        for name in names:
            for writer in self.writers:
                writer.tier.fences.missed(name, generation)  # until it has been carried out
            self._latest.pop(name, None)
            self._overtake(name, DELETED)

    def add(self, tier: Tier, place: int) -> None:
        """Write to a further tier, from the next put on."""
        self.writers.insert(place, self._writer(tier))

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
        with self._hurrying([writer for writer in self.writers if tier in (None, writer.tier)]):
            while any(writer.pending for writer in self.writers if tier in (None, writer.tier)):
                await self._changed.wait()

    def report(self) -> FlushReport:
        """Return what is pending now, and what has failed since the last report."""
        pending = {writer.tier.name: writer.pending for writer in self.writers}
        failed = {writer.tier.name: writer.failed for writer in self.writers}
        for writer in self.writers:
            writer.failed = {}
        return FlushReport(
            {tier: names for tier, names in pending.items() if names},
            {tier: outcomes for tier, outcomes in failed.items() if outcomes},
        )

    def abandon(self) -> None:
        """Begin no further write: the store closes."""
        for writer in self.writers:
            writer.abandon()

    def wake(self) -> None:
        """Let those look again who wait for room or for the end of writes."""
        self._changed.set()
        self._changed = anyio.Event()

    def refusal(self, writer: TierWriter, put: Put) -> str | None:
        """Return why a tier is not to have a put, if so."""
        if writer.tier.is_draining:
            return "draining"
        native = writer.tier.backend.capabilities.native_ttl
        if put.entry.expires_ms and not self.framing.framed and not native:
            return "ttl_unsupported"  # a bare value cannot say when it expires
        over = writer.tier.account.is_over(put.entry.name, self.stored_bytes(put))
        return QUOTA if over else None

    def stored_bytes(self, put: Put) -> int:
        """Return the bytes that a value takes in a tier."""
        return put.entry.nbytes + self.framing.room_bytes

    def has_room(self, writer: TierWriter, put: Put) -> bool:
        """Say whether a value fits into a tier's share of the pending bytes, or is the only one."""
        # Each tier has its share, so that one that hangs does not take the others' room.
        share_bytes = writer.limit_bytes // max(len(self.writers), 1)
        pending = writer.pending_bytes
        return pending == 0 or pending + put.entry.nbytes <= share_bytes

    def _writer(self, tier: Tier) -> TierWriter:
        policy, limit_bytes = self._policy, self._max_pending_bytes
        if isinstance(policy, WriteBack) and tier.backend.write_on == "put":
            return BackWriter(tier, self, policy, limit_bytes)
        return TierWriter(tier, self, limit_bytes)

    def _reason(self, writer: TierWriter, put: Put) -> str:
        if not writer.wants(put):
            return writer.tier.backend.write_on
        return self.refusal(writer, put) or "busy"

    def _overtake(self, name: str, reason: str) -> None:
        """Let a put that no tier was asked for not be submitted any more."""
        put = self._unsubmitted.pop(name, None)
        if put is not None:
            put.overtaken = reason
            self.wake()

    def _choose(self, put: Put) -> tuple[list[TierWriter], list[TierWriter]]:
        """Return the tiers that take a put now, and those that would if they had room."""
        able = [w for w in put.writers if w.wants(put) and self.refusal(w, put) is None]
        return [writer for writer in able if self.has_room(writer, put)], able

    async def _wait_for_room(self, put: Put) -> list[TierWriter]:
        takers, able = self._choose(put)
        full = [writer for writer in able if writer not in takers]
        # None is, if the puts before it in the call have overtaken what took the room.
        longest_s = max((writer.tier.backend.deadline_s for writer in full), default=0.0)
        with anyio.move_on_after(longest_s), self._hurrying(full):
            while put.overtaken is None and not self._enough(put, takers, able):
                await self._changed.wait()
                takers, able = self._choose(put)
        return takers

    @contextmanager
    def _hurrying(self, writers: Sequence[TierWriter]) -> Iterator[None]:
        """Let nothing linger in these tiers."""
        for writer in writers:
            writer.urgent += 1
            writer.stir()
        try:
            yield
        finally:
            for writer in writers:
                writer.urgent -= 1

    @staticmethod
    def _enough(put: Put, takers: Collection[TierWriter], able: Collection[TierWriter]) -> bool:
        match put.acknowledge:
            case "all":
                return len(takers) == len(able)
            case "any":
                return bool(takers) or not able
            case "taken":  # a tier that fails is not waited for
                return all(w in takers or w.tier.health.failure is not None for w in able)
            case "none":
                return True
