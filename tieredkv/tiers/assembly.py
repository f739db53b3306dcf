"""An open store's parts, put together; closing them in order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from tieredkv.backends._workers import Workers
from tieredkv.errors import ConfigError, StoreClosedError, TierUnavailableError
from tieredkv.observe import L1Stats, StoreStats
from tieredkv.observe.logs import Rarely, some_of
from tieredkv.observe.telemetry import Telemetry
from tieredkv.pool.arena import Arena
from tieredkv.pool.limits import warn_of_limits
from tieredkv.results import DeleteOutcome, DeleteStatus, FlushReport
from tieredkv.tasks import Detached
from tieredkv.tiers.absences import Absences
from tieredkv.tiers.chain import Chain
from tieredkv.tiers.fences import Fences, Generations
from tieredkv.tiers.inflight import InFlight, Load
from tieredkv.tiers.lookups import Lookups
from tieredkv.tiers.memory import MemoryTier
from tieredkv.tiers.pacing import Pacer
from tieredkv.tiers.pins import Pins
from tieredkv.tiers.prefetch import Prefetch
from tieredkv.tiers.puts import Puts
from tieredkv.tiers.reads import Reads
from tieredkv.tiers.spill import Spill
from tieredkv.tiers.tier import Tier
from tieredkv.tiers.writes import Writes

if TYPE_CHECKING:
    from tieredkv.backends.base import Backend
    from tieredkv.config import L1Config, WritePolicy
    from tieredkv.keys import Tenant
    from tieredkv.observe import Listeners
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.capacity import QuotaChange
    from tieredkv.tiers.framing import Framing

__all__ = ["Assembly"]

_log: Final = logging.getLogger(__name__)

_CLEARED_TOGETHER: Final = 1000


class Assembly:
    """The parts of a store between open and close.

    Attributes:
        l1: The first tier.
        tiers: The L2 tiers, in order, those that are about to be removed included.
        pacer: When to give way to other tasks.
        reads: The read side.
        puts: The write side.
        lookups: Questions about what is there.
        pins: What look-ups hold.
        prefetch: Loading ahead of need.
        telemetry: What OpenTelemetry hears.
    """

    def __init__(
        self,
        l1: L1Config,
        backends: Sequence[Backend],
        framing: Framing,
        listeners: Listeners,
        *,
        policy: WritePolicy,
        max_pending_bytes: int,
        fence_s: float,
        negative_ttl_s: float,
    ) -> None:
        self._prefault = l1.prefault
        self.telemetry: Telemetry = Telemetry()
        self.l1: MemoryTier = MemoryTier(l1, listeners, room_bytes=framing.room_bytes)
        self._detached = Detached()
        self._corrupt = Rarely(_log)
        self._framing = framing
        self._fence_s = fence_s
        self._negative_ttl_s = negative_ttl_s
        self.tiers: list[Tier] = [self._tier(backend) for backend in backends]
        self._has_ended = False
        self.pacer: Pacer = Pacer()
        self.pins: Pins = Pins(self.l1)
        self._generations = Generations()
        self._inflight = InFlight()
        self._writes = Writes(
            self.tiers,
            self.l1.arena,
            framing,
            self._detached,
            policy=policy,
            max_pending_bytes=max_pending_bytes,
        )
        self._spill = Spill(self.l1, self._writes)
        chain = Chain(
            self.tiers,
            self.l1,
            framing,
            rise=self._rise,
            drop_corrupt=self._drop_corrupt,
            settle=self._settle,
            pending=self._writes.latest,
            pacer=self.pacer,
            make_room=self.pins.drop_lapsed,
        )
        self.reads: Reads = Reads(self.l1, chain, self._inflight, self._detached, self.pacer)
        self.puts: Puts = Puts(self.l1, self._writes, self._inflight, self.pacer, self._generations)
        self.lookups: Lookups = Lookups(self.l1, self.tiers, framing, self._writes.latest)
        self.prefetch: Prefetch = Prefetch(self.l1, self.lookups, self.reads)

    async def open(self) -> None:
        """Make L1's memory ready and open the tiers; if that fails, those that were are closed.

        Raises:
            TierError: A tier refuses, and waiting will not help.
            MissingDependencyError: A package is missing or unfit.
        """
        await self._prepare()
        opened: list[Tier] = []
        try:
            for tier in self.tiers:
                await tier.open()
                opened.append(tier)
        except BaseException:
            await self._detached.to_its_end(partial(_close_in_turn, opened[::-1]))
            raise
        self.telemetry.offer(self.figures)

    async def add(self, backend: Backend, place: int | None) -> None:
        """Open a further tier and ask it from now on; see `TieredStore.add_backend`."""
        tier = self._tier(backend)
        await tier.open()
        refusal: Exception | None = None  # things may have changed meanwhile
        if self._has_ended:
            refusal = StoreClosedError("the store was closed while the backend opened")
        elif any(other.name == tier.name for other in self.tiers):
            refusal = ConfigError(f"l2: the name {tier.name!r} is taken; give the backend another")
        if refusal is not None:
            await self._detached.to_its_end(tier.aclose)
            raise refusal
        place = len(self.tiers) if place is None else place
        self.tiers.insert(place, tier)
        self._writes.add(tier, place)
        self._spill.look()

    async def remove(self, tier: Tier, timeout_s: float) -> None:
        """Drain a tier, then close and forget it; see `TieredStore.remove_backend`."""
        tier.is_draining = True
        with anyio.move_on_after(timeout_s) as scope:
            await self._writes.flush(tier)
        if not tier.is_draining or tier not in self.tiers:  # resumed or removed meanwhile
            return
        if scope.cancelled_caught:
            raise TimeoutError(
                f"{tier.name} still has {len(self._writes.pending(tier))} writes to do after "
                f"{timeout_s} s: it takes no new ones; remove it again, or resume it"
            )
        self.tiers.remove(tier)
        self._writes.remove(tier)
        self._spill.look()
        await self._close([tier], timeout_s)

    def quotas(self, name: str) -> dict[Tenant, int]:
        """Return the quotas of a tier."""
        tier = next((tier for tier in self.tiers if tier.name == name), None)
        return (self.l1.quotas if tier is None else tier.account.quotas).copy()

    async def change_quotas(self, name: str, change: QuotaChange) -> None:
        """Set the quotas of a tier; see `TieredStore.set_quotas`."""
        if name == self.l1.name:
            self.l1.set_quotas(change(self.l1.quotas.copy()))
            return
        tier = next(tier for tier in self.tiers if tier.name == name)
        backend = tier.backend
        is_listed = backend.capabilities.listable and backend.has_own_space
        await tier.account.change_quotas(change, tier.list_names("") if is_listed else None)

    def _tier(self, backend: Backend) -> Tier:
        fences = Fences(self._fence_s, framed=self._framing.framed)
        absences = Absences(self._negative_ttl_s)
        return Tier(backend, self._detached, fences, absences, self.telemetry)

    async def _prepare(self) -> None:
        arena = self.l1.arena
        warn_of_limits(arena.capacity_bytes, arena.overflow_bytes)
        if self._prefault:
            workers = Workers("L1", num_workers=1, connect=lambda: arena, disconnect=lambda _: None)
            workers.open()
            await workers.run(Arena.prefault)
            await workers.aclose()

    async def clear(self, tier: str, tenant: Tenant, *, dry_run: bool) -> int:
        """Remove all values of one tier, or of one tenant there; return how many that are.

        Raises:
            TierError: The tier could not be listed to the end; nothing was removed.
        """
        async with aclosing(self.lookups.names(tier, "", tenant)) as listing:
            names = list({name: None async for name in listing})  # some media name one twice
        if dry_run:
            return len(names)
        if tier == self.l1.name:
            return sum(self.l1.discard(name, "cleared") for name in names if name not in self.pins)
        writer = self._writes.of(tier)
        if writer is None:
            raise TierUnavailableError(tier, "clear", "it has just been removed")
        removed = 0
        for at in range(0, len(names), _CLEARED_TOGETHER):
            some = [name for name in names[at : at + _CLEARED_TOGETHER] if name not in self.pins]
            generation = self._generations.draw()
            with self._inflight.changing(some), self.pins.kept_away(some):
                (outcomes,) = await self._detached.gather([writer.deleting(some, generation)])
            removed += sum(outcome.status is DeleteStatus.DELETED for outcome in outcomes)
        return removed

    async def delete_many(self, names: Sequence[str]) -> dict[str, dict[str, DeleteOutcome]]:
        """Delete distinct names everywhere; returns name → tier → outcome.

        From L1 at once, from each L2 tier in order with the writes of the same key. A pinned name
        stays everywhere. A caller that is cancelled leaves the deletes to run their course.
        """
        pinned = DeleteOutcome(DeleteStatus.PINNED)
        everywhere = [self.l1.name, *(tier.name for tier in self.tiers)]
        outcomes: dict[str, dict[str, DeleteOutcome]] = {
            name: dict.fromkeys(everywhere, pinned) for name in names if name in self.pins
        }
        names = [name for name in names if name not in outcomes]
        with self._inflight.changing(names), self.pins.kept_away(names):
            generation = self._generations.draw()
            self._writes.forget(names, generation)
            for name in names:
                gone = self.l1.discard(name)
                status = DeleteStatus.DELETED if gone else DeleteStatus.ABSENT
                outcomes[name] = {self.l1.name: DeleteOutcome(status)}
            writers = tuple(self._writes.writers)
            answers = await self._detached.gather(
                [writer.deleting(names, generation) for writer in writers]
            )
            for writer, answer in zip(writers, answers, strict=True):
                for name, outcome in zip(names, answer, strict=True):
                    outcomes[name][writer.tier.name] = outcome
        return outcomes

    async def flush(self, timeout_s: float) -> FlushReport:
        """Wait for the pending writes; return what is still pending after `timeout_s`."""
        with anyio.move_on_after(timeout_s):
            await self._writes.flush()
        return self._writes.report()

    async def aclose(self, timeout_s: float) -> FlushReport:
        """Wait for the pending writes, close the backends, drop L1's index. Never cancelled."""
        return await self._detached.to_its_end(partial(self._end, timeout_s))

    async def _end(self, timeout_s: float) -> FlushReport:
        self._has_ended = True
        report = await self.flush(timeout_s)
        for tier, names in report.pending.items():
            shown, where = some_of(names), {"tier": tier, "operation": "write"}
            _log.warning(
                "closed with %d writes to %s unfinished: %s",
                len(names),
                tier,
                shown,
                extra={**where, "outcome": "pending"},
            )
        for tier, failed in report.failed.items():
            shown, where = some_of(tuple(failed)), {"tier": tier, "operation": "write"}
            _log.warning(
                "%s has not stored %d values: %s",
                tier,
                len(failed),
                shown,
                extra={**where, "outcome": "failed"},
            )
        self._writes.abandon()
        await self._close(self.tiers, timeout_s)
        self.l1.clear()
        self.telemetry.close()
        return report

    async def _close(self, tiers: Iterable[Tier], timeout_s: float) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(timeout_s) as scope:
            await self._detached.gather([tier.aclose for tier in tiers])
        if scope.cancelled_caught:
            _log.warning("closed while a backend was still closing")

    async def status(self) -> dict[str, Any]:
        """Return what works and what does not, as `TieredStore.status` does."""
        writers = tuple(self._writes.writers)
        answers = await self._detached.gather([writer.tier.status for writer in writers])
        tiers = {
            writer.tier.name: {
                **answer,
                "pending_writes": writer.pending_writes,
                "pending_bytes": writer.pending_bytes,
                "num_tenants": len(writer.tier.account.usage_bytes),
            }
            for writer, answer in zip(writers, answers, strict=True)
        }
        stats = self.stats()
        l1 = attrs.asdict(stats.l1)
        l1["num_tenants"] = len(l1.pop("usage_bytes"))  # there may be ten thousand
        l1["residence"] = {
            "p50_s": stats.l1.residence.quantile(0.5),
            "p99_s": stats.l1.residence.quantile(0.99),
        }
        return {
            "is_healthy": all(answer["is_healthy"] for answer in answers),
            "l1": {**l1, "blocks_held_by_views": stats.blocks_held_by_views},
            "tiers": tiers,
            "loads_in_flight": stats.loads_in_flight,
            "pins": [pin.status() for pin in self.pins],
        }

    def stats(self) -> StoreStats:
        """Return the figures of this moment."""
        self.pins.drop_lapsed()
        self.l1.settle()
        return self.figures()

    def figures(self) -> StoreStats:
        """Return the figures as they stand; in any thread."""
        l1, arena = self.l1, self.l1.arena
        writers = tuple(self._writes.writers)
        return StoreStats(
            l1=L1Stats(
                objects=len(l1),
                used_bytes=arena.used_bytes,
                capacity_bytes=arena.capacity_bytes,
                overflow_used_bytes=arena.overflow_used_bytes,
                hits=l1.hits,
                misses=l1.misses,
                hit_bytes=l1.hit_bytes,
                evicted=l1.evicted,
                removed=dict(l1.removed),
                residence=l1.residence.copy(),
                leases=len(l1.leases),
                usage_bytes=dict(l1.usage_bytes),
            ),
            tiers={
                writer.tier.name: writer.tier.stats(
                    pending_writes=writer.pending_writes, pending_bytes=writer.pending_bytes
                )
                for writer in writers
            },
            blocks_held_by_views=arena.held_blocks,
            pending_bytes=sum(writer.pending_bytes for writer in writers),
            loads_in_flight=len(self._inflight),
        )

    def _rise(self, tier: Tier, entry: Entry, above: Sequence[Tier], *, prefetched: bool) -> None:
        """Let a value that a tier has answered with enter L1 and the tiers above that lack it."""
        entry.source = tier.name
        if not prefetched and not tier.promotes(entry.name):
            return
        # As if it was put now: a later put or delete is newer, whoever wrote this one.
        entry.generation = self._generations.draw()
        self.l1.admit(entry)
        if self._framing.framed or not tier.backend.capabilities.native_ttl:
            self._writes.back_fill(entry, above)  # else nobody knows when the value expires

    def _settle(self, load: Load) -> None:
        self._inflight.end(load)
        load.settle(self.l1.arena)

    def _drop_corrupt(self, tier: Tier, name: str) -> None:
        """Delete a copy that failed its check, in order with the writes of its key."""
        self._corrupt.log(
            "%s: the copy of %r is corrupt and is dropped",
            tier.name,
            name,
            tier=tier.name,
            operation="read",
            outcome="corrupt",
        )
        writer = self._writes.of(tier.name)
        if writer is not None:  # else it has just been removed
            writer.drop(name)


async def _close_in_turn(tiers: Iterable[Tier]) -> None:
    for tier in tiers:
        await tier.aclose()
