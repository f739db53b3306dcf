"""Reads through the L2 tiers, in order: each is asked only for what those above did not have.

::

    load ─► size known?  ─no─► stat_many ─► L1 block ─► read_many ─► HIT: admit to L1, settle
                 └───────────────yes──────────┘            └─ anything else: note it, next tier

What can go wrong, and what the caller gets:

=============================================  ================================================
its write is pending, and L1 does not hold it  the value that is being written
absent, foreign, expired, older than a put or  next tier, then MISS
delete of ours, or changed in size between
look-up and read, twice
tier down, late, or in error                   next tier, then UNKNOWN
wrong bytes                                    dropped from that tier; next tier, then CORRUPT
another size than the caller asked for         next tier, then REJECTED (`SizeMismatchError`)
no memory, in L1 and in the overflow           REJECTED
key put or deleted meanwhile                   the callers that wait get the bytes; L1 does not
=============================================  ================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from tieredkv.errors import OutOfMemoryError, SizeMismatchError, TieredKVError
from tieredkv.frames import TRAILER_BYTES, now_ms
from tieredkv.observe.logs import Rarely
from tieredkv.results import GetStatus, ReadOutcome

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.framing import Check, Framing
    from tieredkv.tiers.inflight import Load
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.pacing import Pacer
    from tieredkv.tiers.tier import Tier

__all__ = ["Chain", "Wanted"]

_log: Final = logging.getLogger(__name__)

_READS_SHARE_OF_L1: Final = 8


@attrs.define(eq=False)
class Wanted:
    """One value that a reader looks for.

    Attributes:
        load: What became of it.
        out: The caller's buffer, of just the payload's size, or None to land in L1 alone.
        nbytes: Payload bytes that the tier being asked is expected to hold.
        resized: Whether that expectation was corrected once already.
        lacking: The tiers asked so far that do not have it.
    """

    load: Load
    out: memoryview | None = None
    nbytes: int = 0
    resized: bool = False
    lacking: list[Tier] = attrs.field(factory=list)


class Rise(Protocol):
    """Takes a value that a tier has answered with, and the tiers above it that lack it."""

    def __call__(
        self, tier: Tier, entry: Entry, above: Sequence[Tier], /, *, prefetched: bool
    ) -> None: ...


class Chain:
    """The L2 tiers of a store, as a reader sees them."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        l1: MemoryTier,
        framing: Framing,
        *,
        rise: Rise,
        drop_corrupt: Callable[[Tier, str], None],
        settle: Callable[[Load], None],
        pending: Callable[[str], Entry | None],
        pacer: Pacer,
        make_room: Callable[[], None],
    ) -> None:
        """Compose.

        Args:
            tiers: In the order in which they are asked.
            l1: Where values land.
            framing: How values are stored.
            rise: Called with each value that is current.
            drop_corrupt: Called with the tier and name of a copy that failed its check.
            settle: Called with each load as soon as its outcome is known; may be called again.
            pending: Called with a name; returns its value if some tier may hold an older one.
            pacer: When to give way to other tasks.
            make_room: Called before memory is needed.
        """
        self._tiers = tiers
        self._l1 = l1
        self._framing = framing
        self._rise = rise
        self._drop_corrupt = drop_corrupt
        self._settle = settle
        self._pending = pending
        self._pacer = pacer
        self._make_room = make_room
        self._mismatched = Rarely(_log)
        self._batch_bytes = l1.arena.capacity_bytes // _READS_SHARE_OF_L1

    async def load(self, missing: Sequence[Wanted]) -> None:
        """Find values and land them; every load is settled when this returns.

        With caller's buffers among them it must be shielded: it then returns only when no worker
        touches those any more.
        """
        try:
            self._make_room()
            missing = [wanted for wanted in missing if not await self._from_pending(wanted)]
            for tier in tuple(self._tiers):
                if not missing:
                    break
                if tier.is_draining:
                    continue
                missing = await self._load_from(tier, missing)
        finally:  # also when the event loop ends: nobody waits for ever
            for wanted in missing:
                self._settle(wanted.load)

    async def _from_pending(self, wanted: Wanted) -> bool:
        """Answer with the value that is being written, if there is one."""
        load = wanted.load
        entry = self._pending(load.name)
        if entry is None:
            return False
        if entry.expires_ms and entry.expires_ms <= now_ms():
            pass  # a miss, as a load begins
        elif load.size is not None and load.size != entry.nbytes:
            error = SizeMismatchError(entry.nbytes, load.size)
            load.note(self._l1.name, GetStatus.REJECTED, error)
        else:
            entry.users += 1
            load.entry = entry
            if wanted.out is not None:
                await self._pacer.copy(wanted.out, self._l1.arena.view(entry))
            load.note(self._l1.name, GetStatus.HIT, None)
        self._settle(load)
        return True

    async def _load_from(self, tier: Tier, missing: Sequence[Wanted]) -> list[Wanted]:
        """Ask one tier; return what still has no value."""
        sized, left = await self._look_up(tier, missing)
        while sized:
            changed: list[Wanted] = []
            for batch in self._batches(sized):
                await self._read(tier, batch, left, changed)
            sized = changed
        return left

    async def _look_up(
        self, tier: Tier, missing: Sequence[Wanted]
    ) -> tuple[list[Wanted], list[Wanted]]:
        """Return what this tier may hold, with its size, and what it does not."""
        sized: list[Wanted] = []
        left: list[Wanted] = []
        unknown: list[Wanted] = []
        for wanted in missing:
            wanted.resized = False
            if not self._framing.framed and tier.fences.floor(wanted.load.name):
                tier.counts.count("read", "stale_rejected")  # a bare value cannot be told
                wanted.load.note(tier.name, GetStatus.MISS, None)
                left.append(wanted)
            elif wanted.load.size is None:
                unknown.append(wanted)
            else:
                wanted.nbytes = wanted.load.size
                sized.append(wanted)
        outcomes = await tier.stat_many([wanted.load.name for wanted in unknown])
        for wanted, outcome in zip(unknown, outcomes, strict=True):
            status = outcome.status
            if status is GetStatus.HIT:
                payload_bytes = self._framing.payload_bytes(outcome.stored_bytes)
                if payload_bytes is not None:
                    wanted.nbytes = payload_bytes
                    sized.append(wanted)
                    continue
                tier.counts.count("read", "foreign")
                status = GetStatus.MISS
            elif status is GetStatus.MISS:
                wanted.lacking.append(tier)
            wanted.load.note(tier.name, status, outcome.error)
            left.append(wanted)
        return sized, left

    def _batches(self, sized: Sequence[Wanted]) -> Iterator[list[Wanted]]:
        """Cut some so that reads in flight hold at most an eighth of L1, but always one value."""
        batch: list[Wanted] = []
        batch_bytes = 0
        for wanted in sized:
            block_bytes = self._l1.arena.block_bytes(wanted.nbytes)
            if batch and batch_bytes + block_bytes > self._batch_bytes:
                yield batch
                batch, batch_bytes = [], 0
            batch.append(wanted)
            batch_bytes += block_bytes
        yield batch

    async def _read(
        self, tier: Tier, batch: Sequence[Wanted], left: list[Wanted], changed: list[Wanted]
    ) -> None:
        """Read one batch; what gets no value here ends in `left`, or in `changed` to try again."""
        arena = self._l1.arena
        scatter = tier.backend.capabilities.scatter
        landing: list[tuple[Wanted, Entry | None, Check]] = []
        requests = []
        for wanted in batch:
            name, out = wanted.load.name, wanted.out
            if out is not None and scatter and out.nbytes == wanted.nbytes:
                entry = None
                request, check = self._framing.read_scattered(name, out)
            else:
                entry = self._l1.reserve(name, wanted.nbytes)
                if entry is None:
                    wanted.load.note(
                        self._l1.name, GetStatus.REJECTED, OutOfMemoryError(wanted.nbytes)
                    )
                    left.append(wanted)
                    continue
                block = arena.writable(entry)
                request, check = self._framing.read(
                    name, block, scatter=scatter, out=out, urgent=wanted.load.urgent
                )
            check.floor = tier.fences.floor(name)
            landing.append((wanted, entry, check))
            requests.append(request)
        shielded = any(wanted.out is not None for wanted in batch)
        try:
            outcomes = await tier.read_many(requests, shielded=shielded)
        except BaseException:
            for _, entry, _ in landing:
                if entry is not None:
                    arena.drop(entry)
            raise
        del requests  # so that the memory of those that failed can be free at once
        for (wanted, entry, check), outcome in zip(landing, outcomes, strict=True):
            if outcome.status is GetStatus.HIT:
                self._land(tier, wanted, entry, check)
                continue
            if entry is not None:
                arena.drop(entry)
            error = outcome.error
            if isinstance(error, SizeMismatchError) and self._resize(wanted, error.stored):
                changed.append(wanted)
            else:
                self._note(tier, wanted, check, outcome)
                left.append(wanted)

    def _land(self, tier: Tier, wanted: Wanted, entry: Entry | None, check: Check) -> None:
        """Settle a load whose value has landed and proved good."""
        load = wanted.load
        status: GetStatus = GetStatus.HIT
        error: TieredKVError | None = None
        if load.size is not None and load.size != check.payload_bytes:
            status = GetStatus.REJECTED
            error = self._mismatch(tier, load, check.payload_bytes)
        elif entry is not None and wanted.out is None and check.payload_bytes != entry.nbytes:
            entry = self._cut(entry, check.payload_bytes)
            if entry is None:
                status, error = GetStatus.REJECTED, OutOfMemoryError(wanted.nbytes)
        if entry is not None and status is GetStatus.HIT:
            entry.expires_ms = self._l1.promoted_until(check.expires_ms)
            load.entry = entry
            if load.current:
                is_whole = entry.expires_ms == check.expires_ms  # not an aged copy
                above = wanted.lacking if is_whole else ()
                self._rise(tier, entry, above, prefetched=not load.urgent)
        elif entry is not None:
            self._l1.arena.drop(entry)
        load.note(tier.name, status, error)
        self._settle(load)

    def _note(self, tier: Tier, wanted: Wanted, check: Check, outcome: ReadOutcome) -> None:
        """Note why this tier has no value for a load."""
        status, error = outcome.status, outcome.error
        if isinstance(error, SizeMismatchError):
            if wanted.load.size is None:  # it keeps changing under our hands
                status, error = GetStatus.MISS, None
            else:  # the backend speaks of stored bytes, the caller of payloads
                payload_bytes = self._framing.payload_bytes(error.stored) or 0
                error = self._mismatch(tier, wanted.load, payload_bytes)
        elif status is GetStatus.CORRUPT:
            self._drop_corrupt(tier, wanted.load.name)
            wanted.lacking.append(tier)
        elif check.reason:
            tier.counts.count("read", check.reason)
        if status is GetStatus.MISS and check.reason != "foreign":
            wanted.lacking.append(tier)
        wanted.load.note(tier.name, status, error)

    def _mismatch(self, tier: Tier, load: Load, payload_bytes: int) -> SizeMismatchError:
        """Tell of a value that is not of the size that was asked for."""
        tier.counts.count("read", "wrong_size")
        error = SizeMismatchError(payload_bytes, load.size or 0)
        self._mismatched.log(
            "tier %s: %r: %s", tier.name, load.name, error, tier=tier.name, operation="read"
        )
        return error

    def _resize(self, wanted: Wanted, stored_bytes: int) -> bool:
        """Expect the size that the tier turned out to hold, once, if it can be the right one."""
        known = wanted.load.size
        payload_bytes = self._framing.payload_bytes(stored_bytes)
        if known is not None and stored_bytes != known + TRAILER_BYTES:
            return False  # nor is it a frame among bare values
        if wanted.resized or payload_bytes is None:
            return False
        wanted.nbytes, wanted.resized = payload_bytes, True
        return True

    def _cut(self, entry: Entry, payload_bytes: int) -> Entry | None:
        """Return the head of an entry as an entry of its own; None without memory for it."""
        arena = self._l1.arena
        head = self._l1.reserve(entry.name, payload_bytes)
        if head is not None:
            arena.writable(head)[:payload_bytes] = arena.writable(entry)[:payload_bytes]
        arena.drop(entry)
        return head
