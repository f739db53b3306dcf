"""Writing back: the writes of one L2 tier, some time after their puts were acknowledged.

A value waits until it is due, then goes out with others, at most `WriteBack.workers` calls at a
time; a newer one of its key takes its place and its time. What is waited for (`TierWriter.urgent`)
is due at once.

=====================================  ==========================================================
a write's outcome                      what follows
=====================================  ==========================================================
the tier did not answer, or is not     another try after a random pause, some seconds long; then
asked at the moment                    the outcome stands
the same, and its key was put or       the outcome stands; the later call comes next
deleted meanwhile
any other                              it stands
=====================================  ==========================================================
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio

from tieredkv.errors import TierError, TierUnavailableError
from tieredkv.results import GetStatus, PutStatus, WriteOutcome
from tieredkv.tiers.writer import CALL_BYTES, TierWriter, Turn

if TYPE_CHECKING:
    from tieredkv.config import WriteBack
    from tieredkv.tiers.put import Put
    from tieredkv.tiers.tier import Tier
    from tieredkv.tiers.writes import Writes

__all__ = ["BackWriter"]

# Full jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
_MOST_TRIES: Final = 8
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class BackWriter(TierWriter):
    """Writes dirty values to one tier."""

    def __init__(self, tier: Tier, writes: Writes, policy: WriteBack, limit_bytes: int) -> None:
        super().__init__(tier, writes, limit_bytes)
        self._policy = policy
        self._calls = 0
        self._is_watching = False
        self._wakes_at = float("inf")
        self._stirred = anyio.Event()

    def start(self, puts: Iterable[Put]) -> None:
        """Let accepted writes wait until they are due; one supersedes another of its key."""
        now = anyio.current_time()
        for put in puts:
            waiting = self._waiting.get(put.entry.name)
            turn = self._turn(put)
            turn.due = now + self._policy.linger_s if put.in_l1 else now
            if waiting is not None:  # a key that is put all the time is written all the same
                turn.due = min(turn.due, waiting.due)
            self._waiting[put.entry.name] = turn
            if turn.due < self._wakes_at or self.urgent:
                self.stir()

    def stir(self) -> None:
        """See `TierWriter.stir`."""
        self._stirred.set()
        if self._waiting and not self._is_watching:
            self._is_watching = True
            self._writes.detached.spawn(self._watch, self._stirred)

    async def _watch(self, _: anyio.Event) -> None:
        """Begin what is due, as long as something waits."""
        try:
            while self._waiting:
                self._stirred = anyio.Event()
                self._wakes_at = self._begin_due()
                with anyio.CancelScope(deadline=self._wakes_at):
                    await self._stirred.wait()
        finally:
            self._is_watching = False
            self._wakes_at = float("inf")

    def _begin_due(self) -> float:
        """Begin calls for what is due and return when more will be, if nothing stirs before."""
        now = anyio.current_time()
        next_due = float("inf")
        batch: list[Turn] = []
        batch_bytes = 0
        for turn in tuple(self._waiting.values()) if self._has_worker else ():
            if not self._has_worker:
                break
            if turn.before is not None and not turn.before.is_set():
                continue
            if turn.due > now and (turn.tries or not self.urgent):
                next_due = min(next_due, turn.due)
                continue
            del self._waiting[turn.put.entry.name]
            batch.append(turn)
            batch_bytes += turn.put.entry.nbytes
            if batch_bytes >= self._call_bytes:
                self._begin(batch)
                batch, batch_bytes = [], 0
        if batch:
            self._begin(batch)
        return next_due

    @property
    def _has_worker(self) -> bool:
        return self._calls < self._policy.workers

    @property
    def _call_bytes(self) -> int:
        # So that some of the memory comes back while the rest is written.
        return min(CALL_BYTES, self.limit_bytes // (2 * self._policy.workers))

    def _begin(self, batch: list[Turn]) -> None:
        self._calls += 1
        self._writes.detached.spawn(self._call, batch)

    async def _call(self, batch: list[Turn]) -> None:
        try:
            await self._write(batch)
        finally:
            self._calls -= 1
        self.stir()

    def _end_turn(self, name: str, end: anyio.Event) -> None:
        super()._end_turn(name, end)
        if name in self._waiting:
            self.stir()

    def _written(self, turn: Turn, outcome: WriteOutcome) -> None:
        name = turn.put.entry.name
        turn.tries += 1
        if outcome.status is PutStatus.UNKNOWN:
            turn.unknown = outcome
        if not self._is_retried(turn, outcome):
            stored = outcome.status is PutStatus.STORED
            super()._written(turn, outcome if stored else turn.unknown or outcome)
            return
        if outcome.status is PutStatus.UNKNOWN:  # it may land after a later try, and after others
            self.tier.fences.unknown(name, turn.put.entry.generation, GetStatus.UNKNOWN)
        self.tier.counts.count("write", "retried")
        pause_s = min(_FIRST_PAUSE_S * 2 ** (turn.tries - 1), _LONGEST_PAUSE_S)
        turn.due = anyio.current_time() + random.uniform(0, pause_s)  # noqa: S311
        turn.before = None
        self._waiting[name] = turn

    def _is_retried(self, turn: Turn, outcome: WriteOutcome) -> bool:
        if self._is_abandoned:
            return False
        if self._last.get(turn.put.entry.name) is not turn.end:  # a later call waits for this one
            return False
        if outcome.status in (PutStatus.STORED, PutStatus.REJECTED):
            return False
        unknown = outcome.status is PutStatus.UNKNOWN and isinstance(outcome.error, TierError)
        unreached = isinstance(outcome.error, TierUnavailableError)
        return (unknown or unreached) and turn.tries < _MOST_TRIES
