"""A look at the parts of an open store."""

from __future__ import annotations

from tieredkv import TieredStore
from tieredkv.tiers.assembly import Assembly


def inside(store: TieredStore) -> Assembly:
    """Return the parts of an open store."""
    assert store._open is not None
    return store._open


def users(store: TieredStore, key: str) -> int:
    """Return how many use a value that L1 holds, the index included."""
    inside(store).l1.arena.drain()
    entry = inside(store).l1.peek(key)
    assert entry is not None
    return entry.users
