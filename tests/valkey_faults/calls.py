"""A backend whose requests give up soon."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests import calls
from tieredkv.backends import ValkeyBackend

REQUEST_TIMEOUT_S: Final = 0.4
"""Short, since what is issued in an outage takes so long."""


def backend_at(address: str | Sequence[str], **options: Any) -> ValkeyBackend:
    """Return a backend that gives up soon."""
    impatient = {"request_timeout_s": REQUEST_TIMEOUT_S, "connect_timeout_s": 1.0}
    return ValkeyBackend(address, **{"num_workers": 4, **impatient, **options})


def opened(
    address: str | Sequence[str], **options: Any
) -> AbstractAsyncContextManager[ValkeyBackend]:
    """Open a backend that gives up soon, and close it."""
    return calls.opened(backend_at(address, **options))
