"""Eviction policies: who leaves first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tieredkv.config import PolicyName, choice
from tieredkv.pool.eviction.arc import ARC
from tieredkv.pool.eviction.base import EvictionPolicy
from tieredkv.pool.eviction.gittins import Gittins
from tieredkv.pool.eviction.isolated import IsolatedLRU
from tieredkv.pool.eviction.lru import LRU
from tieredkv.pool.eviction.noop import NoEviction
from tieredkv.pool.eviction.s3fifo import S3FIFO

__all__ = [
    "ARC",
    "LRU",
    "S3FIFO",
    "EvictionPolicy",
    "Gittins",
    "IsolatedLRU",
    "NoEviction",
    "PolicyName",
    "make_policy",
]

_MAKERS: Final[dict[PolicyName, Callable[[], EvictionPolicy]]] = {
    "default": Gittins,
    "gittins": Gittins,
    "lru": LRU,
    "s3fifo": S3FIFO,
    "arc": ARC,
    "isolated_lru": IsolatedLRU,
    "noop": NoEviction,
}


def make_policy(name: PolicyName) -> EvictionPolicy:
    """Return a new policy that holds nothing.

    Raises:
        ConfigError: No policy has this name; the message lists those that there are.
    """
    choice(name, field="eviction_policy", choices=tuple(_MAKERS))
    return _MAKERS[name]()
