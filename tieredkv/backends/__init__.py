"""Backends: the media behind L1, and what it takes to write one."""

from tieredkv.backends.base import (
    Backend,
    BackendStatus,
    Capabilities,
    ReadCheck,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.backends.disk import DiskBackend
from tieredkv.backends.threaded import ThreadedBackend

__all__ = [
    "Backend",
    "BackendStatus",
    "Capabilities",
    "DiskBackend",
    "ReadCheck",
    "ReadRequest",
    "StoredName",
    "ThreadedBackend",
    "WriteRequest",
]
