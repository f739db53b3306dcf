"""Tiered storage for large, recomputable values: L1 memory in front of disk, Valkey and the Hub.

Everything here is imported when it is first named, so that ``import tieredkv`` costs next to
nothing and a command line or a test pays only for what it uses.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tieredkv.deferred import imported
from tieredkv.version import __version__ as __version__

if TYPE_CHECKING:
    from tieredkv.blocking import BlockingLookup, BlockingTieredStore
    from tieredkv.config import L1Config, WriteBack, WriteThrough
    from tieredkv.errors import TieredKVError
    from tieredkv.keys import ALL, Key, ObjectKey
    from tieredkv.observe import Histogram, L1Stats, StoreStats, TierStats
    from tieredkv.pool.lease import GetResult, GetResults, MemoryObject
    from tieredkv.results import (
        DeleteResult,
        DeleteStatus,
        FlushReport,
        GetStatus,
        PrefetchResult,
        PutResult,
        PutStatus,
        StatResult,
        ValueInfo,
        WriteOutcome,
    )
    from tieredkv.store import Slot, TieredStore
    from tieredkv.tiers.held import Lookup

__all__ = [
    "ALL",
    "BlockingLookup",
    "BlockingTieredStore",
    "DeleteResult",
    "DeleteStatus",
    "FlushReport",
    "GetResult",
    "GetResults",
    "GetStatus",
    "Histogram",
    "Key",
    "L1Config",
    "L1Stats",
    "Lookup",
    "MemoryObject",
    "ObjectKey",
    "PrefetchResult",
    "PutResult",
    "PutStatus",
    "Slot",
    "StatResult",
    "StoreStats",
    "TierStats",
    "TieredKVError",
    "TieredStore",
    "ValueInfo",
    "WriteBack",
    "WriteOutcome",
    "WriteThrough",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet, unless the host listens

_MODULES = {
    "ALL": "keys",
    "BlockingLookup": "blocking",
    "BlockingTieredStore": "blocking",
    "GetResult": "pool.lease",
    "GetResults": "pool.lease",
    "Histogram": "observe",
    "Key": "keys",
    "L1Config": "config",
    "L1Stats": "observe",
    "Lookup": "tiers.held",
    "MemoryObject": "pool.lease",
    "ObjectKey": "keys",
    "Slot": "store",
    "StoreStats": "observe",
    "TierStats": "observe",
    "TieredKVError": "errors",
    "TieredStore": "store",
    "WriteBack": "config",
    "WriteThrough": "config",
}
"""Where a public name is defined, unless in `tieredkv.results`."""


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _MODULES, "results")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
