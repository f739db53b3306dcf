"""Tiered storage for large, recomputable values: L1 memory in front of disk, Valkey and the Hub."""

from tieredkv.config import L1Config, WriteThrough
from tieredkv.errors import TieredKVError
from tieredkv.keys import ALL, Key, ObjectKey
from tieredkv.observe import L1Stats, StoreStats
from tieredkv.pool.lease import GetResult, GetResults, MemoryObject
from tieredkv.results import (
    DeleteResult,
    DeleteStatus,
    FlushReport,
    GetStatus,
    PutResult,
    PutStatus,
    StatResult,
    ValueInfo,
    WriteOutcome,
)
from tieredkv.store import Slot, TieredStore

__all__ = [
    "ALL",
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
    "Slot",
    "StatResult",
    "StoreStats",
    "TieredKVError",
    "TieredStore",
    "ValueInfo",
    "WriteOutcome",
    "WriteThrough",
]

__version__ = "0.1.0"
