"""Short calls over a backend whose requests give up soon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tieredkv.backends import Backend, ValkeyBackend
from tieredkv.results import GetStatus, ReadOutcome, WriteOutcome
from tieredkv.testing.backends.requests import Landing, Source

REQUEST_TIMEOUT_S: Final = 0.4
"""Short, since what is issued in an outage takes so long."""


def backend_at(address: str | Sequence[str], **options: Any) -> ValkeyBackend:
    """Return a backend that gives up soon."""
    impatient = {"request_timeout_s": REQUEST_TIMEOUT_S, "connect_timeout_s": 1.0}
    return ValkeyBackend(address, **{"num_workers": 4, **impatient, **options})


@asynccontextmanager
async def opened(address: str | Sequence[str], **options: Any) -> AsyncIterator[ValkeyBackend]:
    """Open a backend that gives up soon, and close it."""
    backend = backend_at(address, **options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.aclose()


async def put(backend: Backend, name: str, value: bytes) -> WriteOutcome:
    (outcome,) = await backend.write_many([Source(name, value).request()])
    return outcome


async def read(backend: Backend, name: str, nbytes: int) -> ReadOutcome:
    (outcome,) = await backend.read_many([Landing(name, nbytes).request()])
    return outcome


async def get(backend: Backend, name: str, nbytes: int) -> bytes | None:
    """Return a value of a known size, None for a miss."""
    landing = Landing(name, nbytes)
    (outcome,) = await backend.read_many([landing.request()])
    if outcome.status is GetStatus.MISS:
        return None
    assert outcome.status is GetStatus.HIT, outcome
    return landing.value
