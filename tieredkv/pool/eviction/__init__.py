"""Eviction policies: who leaves first."""

from tieredkv.pool.eviction.base import EvictionPolicy
from tieredkv.pool.eviction.lru import LRU

__all__ = ["LRU", "EvictionPolicy"]
