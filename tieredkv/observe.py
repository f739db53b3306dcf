"""What a store says of itself: counters, latencies, events."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

__all__ = [
    "CacheEvent",
    "Counts",
    "EventKind",
    "Histogram",
    "L1Stats",
    "Listener",
    "Listeners",
    "StoreStats",
    "Subscription",
]

_log: Final = logging.getLogger(__name__)

EventKind: TypeAlias = Literal["stored", "accessed", "evicted", "deleted"]


@attrs.frozen
class CacheEvent:
    """Something that happened to values of one tier.

    Attributes:
        kind: ``"stored"``, ``"accessed"``, ``"evicted"`` or ``"deleted"``.
        tier: Name of the tier, not empty.
        names: Wire names.
        sizes: Payload bytes, one for each name.
    """

    kind: EventKind
    tier: str
    names: Sequence[str]
    sizes: Sequence[int]

    def __attrs_post_init__(self) -> None:
        if not self.tier:
            raise ValueError("an event needs the name of its tier")
        if len(self.names) != len(self.sizes):
            raise ValueError(f"an event with {len(self.names)} names and {len(self.sizes)} sizes")


Listener: TypeAlias = Callable[[CacheEvent], None]
"""Called on the event loop, after the store's own state is settled; must return soon."""


class Listeners:
    """Those who want to hear of events. One that raises is logged and harms nobody.

    Attributes:
        registered: The listeners, by subscription; empty when events need not even be made.
    """

    __slots__ = ("registered",)

    def __init__(self) -> None:
        self.registered: dict[Subscription, Listener] = {}

    def subscribe(self, listener: Listener) -> Subscription:
        """Call `listener` with every event from now on, until the subscription is cancelled."""
        subscription = Subscription(self.registered)
        self.registered[subscription] = listener
        return subscription

    def emit(self, kind: EventKind, tier: str, names: Sequence[str], sizes: Sequence[int]) -> None:
        """Tell every listener; costs nothing when there is none."""
        if not self.registered or not names:
            return
        event = CacheEvent(kind, tier, names, sizes)
        for listener in tuple(self.registered.values()):
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - a listener is not ours
                _log.exception("a listener raised on %s", kind)


class Subscription:
    """Handle of one listener; `cancel` ends it and may be called twice."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: dict[Subscription, Listener]) -> None:
        self._listeners = listeners

    def cancel(self) -> None:
        """Stop the events."""
        self._listeners.pop(self, None)


class Histogram:
    """Counts of durations in buckets that are at most 1/16 wide.

    A duration's bucket is its binary exponent and the next four bits of its mantissa, as in the
    HDR histogram (Gil Tene, hdrhistogram.org), but sparse: a bucket exists once it is hit. So a
    quantile is off by 3.2 % at the most, whatever the range.

    Attributes:
        count: Durations recorded.
        total_s: Their sum, in seconds.
    """

    __slots__ = ("_buckets", "count", "total_s")

    _STEPS: Final = 16

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count: int = 0
        self.total_s: float = 0.0

    def record(self, duration_s: float, times: int = 1) -> None:
        """Count a duration, as that of `times` operations."""
        mantissa, exponent = math.frexp(max(duration_s, 1e-9))
        bucket = exponent * self._STEPS + int((mantissa - 0.5) * 2 * self._STEPS)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self.total_s += duration_s * times

    def quantile(self, fraction: float) -> float:
        """Return the duration in seconds below which this fraction of them lies; 0.0 if none."""
        rank = fraction * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                exponent, step = divmod(bucket, self._STEPS)
                return math.ldexp(0.5 + (step + 0.5) / (2 * self._STEPS), exponent)
        return 0.0

    def copy(self) -> Histogram:
        """Return a detached copy."""
        twin = Histogram()
        twin._buckets = dict(self._buckets)
        twin.count, twin.total_s = self.count, self.total_s
        return twin


class Counts:
    """Counters of one tier: how often each operation ended in each way, with bytes and latency.

    Attributes:
        outcomes: ``(operation, outcome)`` → number of keys, for example ``("read", "hit")``;
            further causes stand beside them, for example ``("read", "foreign")``.
        nbytes: Operation → payload bytes moved.
        latency: Operation → durations of its calls, each as that of every key in it.
    """

    __slots__ = ("latency", "nbytes", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], int] = {}
        self.nbytes: dict[str, int] = {}
        self.latency: dict[str, Histogram] = {}

    def count(self, operation: str, outcome: str, nbytes: int = 0) -> None:
        """Count a key that ended this way and the payload bytes that were moved for it."""
        cell = (operation, outcome)
        self.outcomes[cell] = self.outcomes.get(cell, 0) + 1
        if nbytes:
            self.nbytes[operation] = self.nbytes.get(operation, 0) + nbytes

    def time(self, operation: str, duration_s: float, times: int = 1) -> None:
        """Record the duration of a call that served `times` keys."""
        histogram = self.latency.get(operation)
        if histogram is None:
            histogram = self.latency[operation] = Histogram()
        histogram.record(duration_s, times)

    def copy(self) -> Counts:
        """Return a detached copy."""
        twin = Counts()
        twin.outcomes, twin.nbytes = dict(self.outcomes), dict(self.nbytes)
        twin.latency = {name: histogram.copy() for name, histogram in self.latency.items()}
        return twin


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
        evicted: Values evicted.
        leases: Leases that are out.
        usage_bytes: Tenant → memory of its values; ``""`` for those without one.
    """

    objects: int
    used_bytes: int
    capacity_bytes: int
    overflow_used_bytes: int
    hits: int
    misses: int
    hit_bytes: int
    evicted: int
    leases: int
    usage_bytes: Mapping[str, int]


@attrs.frozen(kw_only=True)
class StoreStats:
    """Figures of a store at one moment, detached from it.

    Attributes:
        l1: The first tier.
        tiers: L2 tier → its counters since the store was opened.
        blocks_held_by_views: Blocks that nothing but a reader's view keeps from being used again.
        pending_bytes: Bytes of writes without an outcome yet, over all tiers.
        loads_in_flight: Keys that are being loaded.
    """

    l1: L1Stats
    tiers: Mapping[str, Counts]
    blocks_held_by_views: int
    pending_bytes: int
    loads_in_flight: int
