"""Values that reach a tier late: when L1 evicts them, or when it has answered with them twice.

=========================================  ======================================================
L1 evicts a value, and the tier ...
=========================================  ======================================================
is where L1 has it from                    nothing is written
has room in its share of pending bytes     it is written; its memory comes back after that, and
                                           readers get it from there until then
has no room, is down, or cannot keep it    it is lost there, and counted as ``("write", "lost")``
=========================================  ======================================================

A write that fails is not tried again. What such a tier holds for a key that was put since is older,
and is not read, for as long as that is remembered (`tieredkv.tiers.fences`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tieredkv.frames import now_ms
from tieredkv.results import PutStatus, WriteOutcome
from tieredkv.tiers.put import Put

if TYPE_CHECKING:
    from tieredkv.config import WriteOn
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.writer import TierWriter
    from tieredkv.tiers.writes import Writes

__all__ = ["Spill"]

_HITS: Final = 2
_LOST: Final = WriteOutcome(PutStatus.SKIPPED, "lost")


class Spill:
    """Writes values of L1 to the tiers that are not written with a put."""

    def __init__(self, l1: MemoryTier, writes: Writes) -> None:
        self._l1 = l1
        self._writes = writes
        self._evicted_to: list[TierWriter] = []
        self._hits_to: list[TierWriter] = []
        self.look()

    @property
    def leaving_bytes(self) -> int:
        """Memory of evicted values that are being written."""
        return self._writes.leaving_bytes

    def look(self) -> None:
        """Note which tiers there are now."""
        self._evicted_to = self._written_on("evict")
        self._hits_to = self._written_on("second_hit")
        self._l1.outlet = self if self._evicted_to else None
        self._l1.watch = self._accessed if self._hits_to else None

    def take(self, entries: Sequence[Entry]) -> None:
        """Write values that L1 has just evicted, and whose users the caller still is."""
        puts = [self._put(entry, self._evicted_to) for entry in entries]
        for put in puts:
            if put.is_pending:
                put.leaving_bytes = put.entry.block_bytes
                self._writes.leaving_bytes += put.leaving_bytes
                self._l1.disown(put.entry)
        self._start(puts)

    def _accessed(self, entry: Entry) -> None:
        """Count a hit of L1; the second one sends the value on."""
        entry.hits += 1
        if entry.hits == _HITS:
            put = self._put(entry, self._hits_to)
            self._start([put])
            if any(outcome is _LOST for outcome in put.outcomes.values()):
                entry.hits -= 1  # the next hit tries again

    def _put(self, entry: Entry, writers: Sequence[TierWriter]) -> Put:
        """Return the put of an entry to the tiers that take it, which are its users from now on."""
        if entry.expires_ms and entry.expires_ms <= now_ms():
            writers = ()
        writers = [writer for writer in writers if writer.tier.name != entry.source]
        put = Put(entry, "none", writers)
        for writer in writers:
            refused = self._writes.refusal(writer, put) or not self._writes.has_room(writer, put)
            if refused or writer.tier.health.is_open:
                writer.tier.counts.count("write", "lost")
                put.finish(writer.tier.name, _LOST)
            else:
                writer.accept(put)
        return put

    def _start(self, puts: Sequence[Put]) -> None:
        by_writer: dict[TierWriter, list[Put]] = {}
        for put in puts:
            if put.is_pending:
                self._writes.watch(put)
            for writer in put.writers:
                if put.outcomes[writer.tier.name].status is PutStatus.PENDING:
                    by_writer.setdefault(writer, []).append(put)
        for writer, accepted in by_writer.items():
            writer.start(accepted)

    def _written_on(self, write_on: WriteOn) -> list[TierWriter]:
        return [w for w in self._writes.writers if w.tier.backend.write_on == write_on]
