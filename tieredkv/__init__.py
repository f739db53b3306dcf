"""Tiered storage for large, recomputable values: L1 memory in front of disk, Valkey and the Hub."""

from tieredkv.config import L1Config, WriteThrough
from tieredkv.errors import TieredKVError
from tieredkv.keys import Key, ObjectKey
from tieredkv.pool.lease import GetResult, GetResults, MemoryObject
from tieredkv.results import (
    DeleteResult,
    DeleteStatus,
    FlushReport,
    GetStatus,
    PutResult,
    PutStatus,
    WriteOutcome,
)
from tieredkv.store import L1Stats, StoreStats, TieredStore

__all__ = [
    "DeleteResult",
    "DeleteStatus",
    "FlushReport",
    "GetResult",
    "GetResults",
    "GetStatus",
    "Key",
    "L1Config",
    "L1Stats",
    "MemoryObject",
    "ObjectKey",
    "PutResult",
    "PutStatus",
    "StoreStats",
    "TieredKVError",
    "TieredStore",
    "WriteOutcome",
    "WriteThrough",
]

__version__ = "0.1.0"
