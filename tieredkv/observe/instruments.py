"""The metrics that a store offers, as the figures they are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs

from tieredkv.observe.stats import StoreStats, TierStats

__all__ = ["DURATION", "INSTRUMENTS", "Instrument", "Point"]

DURATION: Final = "tieredkv.operation.duration"
"""The histogram; it is recorded with each call, all others are read when they are collected."""

Point: TypeAlias = tuple[float, dict[str, str]]
"""A value and its attributes."""


@attrs.frozen
class Instrument:
    """One metric.

    Attributes:
        name: Its name.
        kind: What it is: a sum that grows, one that goes up and down, or a state.
        unit: Its unit, in UCUM.
        description: What it says.
        points: Reads its points off a store's figures.
    """

    name: str
    kind: Literal["counter", "up_down_counter", "gauge"]
    unit: str
    description: str
    points: Callable[[StoreStats], Iterable[Point]]


def _operations(stats: StoreStats) -> Iterator[Point]:
    l1 = {"tieredkv.tier": "l1", "tieredkv.operation": "read"}
    yield stats.l1.hits, {**l1, "tieredkv.outcome": "hit"}
    yield stats.l1.misses, {**l1, "tieredkv.outcome": "miss"}
    for tier, figures in stats.tiers.items():
        for (operation, outcome), times in figures.outcomes.items():
            yield (
                times,
                {
                    "tieredkv.tier": tier,
                    "tieredkv.operation": operation,
                    "tieredkv.outcome": str(outcome),
                },
            )


def _io(stats: StoreStats) -> Iterator[Point]:
    yield stats.l1.hit_bytes, {"tieredkv.tier": "l1", "tieredkv.operation": "read"}
    for tier, figures in stats.tiers.items():
        for operation, nbytes in figures.nbytes.items():
            yield nbytes, {"tieredkv.tier": tier, "tieredkv.operation": operation}


def _removed(stats: StoreStats) -> Iterator[Point]:
    for cause, times in stats.l1.removed.items():
        yield times, {"tieredkv.cause": cause}


def _of_l1(figure: Callable[[StoreStats], float]) -> Callable[[StoreStats], Iterable[Point]]:
    return lambda stats: [(figure(stats), {})]


def _of_tiers(figure: Callable[[TierStats], float]) -> Callable[[StoreStats], Iterable[Point]]:
    return lambda stats: [
        (figure(figures), {"tieredkv.tier": tier}) for tier, figures in stats.tiers.items()
    ]


INSTRUMENTS: Final = (
    Instrument(
        "tieredkv.operations", "counter", "{key}", "Keys, by how they were answered.", _operations
    ),
    Instrument("tieredkv.io", "counter", "By", "Bytes read and written.", _io),
    Instrument(
        "tieredkv.l1.objects",
        "up_down_counter",
        "{value}",
        "Values in L1.",
        _of_l1(lambda stats: stats.l1.objects),
    ),
    Instrument(
        "tieredkv.l1.used",
        "up_down_counter",
        "By",
        "Memory of L1 that is in use.",
        _of_l1(lambda stats: stats.l1.used_bytes),
    ),
    Instrument(
        "tieredkv.l1.capacity",
        "up_down_counter",
        "By",
        "Memory of L1.",
        _of_l1(lambda stats: stats.l1.capacity_bytes),
    ),
    Instrument(
        "tieredkv.l1.overflow",
        "up_down_counter",
        "By",
        "Memory beside L1, for what it could not take.",
        _of_l1(lambda stats: stats.l1.overflow_used_bytes),
    ),
    Instrument(
        "tieredkv.l1.leases",
        "up_down_counter",
        "{lease}",
        "Leases that readers hold.",
        _of_l1(lambda stats: stats.l1.leases),
    ),
    Instrument(
        "tieredkv.l1.held",
        "up_down_counter",
        "{block}",
        "Blocks that only a reader's view keeps.",
        _of_l1(lambda stats: stats.blocks_held_by_views),
    ),
    Instrument(
        "tieredkv.l1.removed", "counter", "{value}", "Values that left L1, by cause.", _removed
    ),
    Instrument(
        "tieredkv.l1.residence",
        "counter",
        "s",
        "Ages of all evicted values, added up.",
        _of_l1(lambda stats: stats.l1.residence.total_s),
    ),
    Instrument(
        "tieredkv.loads",
        "up_down_counter",
        "{key}",
        "Keys that are being loaded.",
        _of_l1(lambda stats: stats.loads_in_flight),
    ),
    Instrument(
        "tieredkv.pending.writes",
        "up_down_counter",
        "{key}",
        "Keys with a write or delete that has no outcome yet.",
        _of_tiers(lambda figures: figures.pending_writes),
    ),
    Instrument(
        "tieredkv.pending.bytes",
        "up_down_counter",
        "By",
        "Bytes of writes that have no outcome yet.",
        _of_tiers(lambda figures: figures.pending_bytes),
    ),
    Instrument(
        "tieredkv.breaker.closed",
        "gauge",
        "1",
        "1 while the tier is asked, 0 while it is not.",
        _of_tiers(lambda figures: int(figures.is_asked)),
    ),
    Instrument(
        "tieredkv.breaker.opened",
        "counter",
        "{time}",
        "Times that the tier was given up.",
        _of_tiers(lambda figures: figures.times_given_up),
    ),
    Instrument(
        "tieredkv.breaker.probes",
        "counter",
        "{probe}",
        "Questions whether the tier answers again.",
        _of_tiers(lambda figures: figures.probes),
    ),
)
