"""Backends: the media behind L1, and what it takes to write one.

Each is imported when it is first named, so that a program pays for those that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tieredkv.deferred import imported

if TYPE_CHECKING:
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
    from tieredkv.backends.hfbucket import HFBucketBackend
    from tieredkv.backends.threaded import ThreadedBackend
    from tieredkv.backends.valkey import TLS, ValkeyBackend

__all__ = [
    "TLS",
    "Backend",
    "BackendStatus",
    "Capabilities",
    "DiskBackend",
    "HFBucketBackend",
    "ReadCheck",
    "ReadRequest",
    "StoredName",
    "ThreadedBackend",
    "ValkeyBackend",
    "WriteRequest",
]

_MODULES = {
    "DiskBackend": "disk",
    "HFBucketBackend": "hfbucket",
    "TLS": "valkey",
    "ThreadedBackend": "threaded",
    "ValkeyBackend": "valkey",
}


def __getattr__(name: str) -> Any:
    return imported(globals(), name, _MODULES, "base")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
