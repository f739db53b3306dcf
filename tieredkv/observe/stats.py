"""A store's figures: counters as they run, and snapshots of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from tieredkv.observe.histogram import Histogram

__all__ = ["Counts", "L1Stats", "Removal", "StoreStats", "TierStats"]

Removal: TypeAlias = Literal[
    "watermark", "room", "quota", "expired", "replaced", "deleted", "cleared"
]
"""Why a value left L1. The first three are evictions: L1 was fuller than its watermark; a value
needed the memory; its tenant had used up its quota."""


class Counts:
    """Counters of one tier: how often each operation ended in each way, with bytes and latency.

    Attributes:
        outcomes: ``(operation, outcome)`` → number of keys, for example ``("read", "hit")``;
            further causes stand beside them, for example ``("read", "foreign")``.
        nbytes: Operation → bytes moved, payloads with their trailers.
        latency: ``(operation, outcome)`` → durations of its calls, each as that of every key in it
            that ended so.
    """

    __slots__ = ("latency", "nbytes", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], int] = {}
        self.nbytes: dict[str, int] = {}
        self.latency: dict[tuple[str, str], Histogram] = {}

    def count(self, operation: str, outcome: str, nbytes: int = 0, *, times: int = 1) -> None:
        """Count keys that ended this way and the bytes that were moved for them."""
        cell = (operation, outcome)
        self.outcomes[cell] = self.outcomes.get(cell, 0) + times
        if nbytes:
            self.nbytes[operation] = self.nbytes.get(operation, 0) + nbytes

    def time(self, operation: str, outcome: str, duration_s: float, times: int = 1) -> None:
        """Record the duration of a call in which so many keys ended this way."""
        cell = (operation, outcome)
        histogram = self.latency.get(cell)
        if histogram is None:
            histogram = self.latency[cell] = Histogram()
        histogram.record(duration_s, times)


@attrs.frozen(kw_only=True)
class L1Stats:
    """Figures of L1 at one moment; bytes are those of memory blocks, but for `hit_bytes`.

    Attributes:
        objects: Values held.
        used_bytes: Memory in blocks, held ones included.
        capacity_bytes: Memory of the pool.
        overflow_used_bytes: Memory of private blocks.
        hits: Reads answered.
        misses: Reads not answered.
        hit_bytes: Payload bytes of the hits.
        evicted: Values evicted, whatever the cause.
        removed: `Removal` → values that left for this cause; of those that occurred.
        residence: Ages of the values that were evicted: the time since each was put or loaded. By
            the system's clock: where that is set, ages are off.
        leases: Leases that are out.
        usage_bytes: Tenant → memory of its values, those that are being filled or that readers
            still hold included; ``""`` for those without one.
    """

    objects: int
    used_bytes: int
    capacity_bytes: int
    overflow_used_bytes: int
    hits: int
    misses: int
    hit_bytes: int
    evicted: int
    removed: Mapping[str, int]
    residence: Histogram
    leases: int
    usage_bytes: Mapping[str, int]


@attrs.frozen(kw_only=True)
class TierStats:
    """Figures of an L2 tier at one moment.

    Attributes:
        outcomes: As of `Counts`.
        nbytes: As of `Counts`.
        latency_by_outcome: As `Counts.latency`.
        is_asked: Whether its breaker is closed; an open one keeps calls from a tier that is down.
        times_given_up: How often the breaker has opened.
        probes: How often it was asked, while the breaker was open, whether it answers again.
        pending_writes: Keys with a write or delete that has no outcome yet.
        pending_bytes: Payload bytes of the writes among them.
        usage_bytes: Tenant → bytes stored, as far as this process knows, while there are quotas.
    """

    outcomes: Mapping[tuple[str, str], int]
    nbytes: Mapping[str, int]
    latency_by_outcome: Mapping[tuple[str, str], Histogram]
    is_asked: bool
    times_given_up: int
    probes: int
    pending_writes: int
    pending_bytes: int
    usage_bytes: Mapping[str, int]

    @property
    def latency(self) -> Mapping[str, Histogram]:
        """Operation → durations of its calls, whatever came of them, each as that of every key."""
        of: dict[str, list[Histogram]] = {}
        for (operation, _), histogram in self.latency_by_outcome.items():
            of.setdefault(operation, []).append(histogram)
        return {operation: Histogram.merged(parts) for operation, parts in of.items()}


@attrs.frozen(kw_only=True)
class StoreStats:
    """Figures of a store at one moment, detached from it; those that count do so since it opened.

    Attributes:
        l1: The first tier.
        tiers: L2 tier → its figures, in the order in which they are asked.
        blocks_held_by_views: Blocks that nothing but a reader's view keeps from being used again.
        pending_bytes: Bytes of writes without an outcome yet, over all tiers.
        loads_in_flight: Keys that are being loaded.
    """

    l1: L1Stats
    tiers: Mapping[str, TierStats]
    blocks_held_by_views: int
    pending_bytes: int
    loads_in_flight: int
