"""What a store says of itself: events, counters, latencies.

Each is imported when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tieredkv.deferred import imported

if TYPE_CHECKING:
    from tieredkv.observe.events import CacheEvent, EventKind, Listener, Listeners, Subscription
    from tieredkv.observe.histogram import Histogram
    from tieredkv.observe.stats import Counts, L1Stats, Removal, StoreStats, TierStats

__all__ = [
    "CacheEvent",
    "Counts",
    "EventKind",
    "Histogram",
    "L1Stats",
    "Listener",
    "Listeners",
    "Removal",
    "StoreStats",
    "Subscription",
    "TierStats",
]

_MODULES = {
    "Counts": "stats",
    "Histogram": "histogram",
    "L1Stats": "stats",
    "Removal": "stats",
    "StoreStats": "stats",
    "TierStats": "stats",
}
"""Where a name is defined, unless in `tieredkv.observe.events`."""


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _MODULES, "events")
