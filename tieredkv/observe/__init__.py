"""What a store says of itself: events, counters, latencies."""

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
