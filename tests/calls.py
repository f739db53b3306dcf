"""Short calls of a backend: one value in, one value out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from tieredkv.backends import Backend
from tieredkv.results import GetStatus, ReadOutcome, WriteOutcome
from tieredkv.testing.backends.requests import Landing, Source

__all__ = ["get", "names", "opened", "put", "read", "size"]

BackendT = TypeVar("BackendT", bound=Backend)


@asynccontextmanager
async def opened(backend: BackendT) -> AsyncIterator[BackendT]:
    """Open a backend and close it."""
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


async def size(backend: Backend, name: str) -> int | None:
    (outcome,) = await backend.stat_many([name])
    return outcome.stored_bytes if outcome.status is GetStatus.HIT else None


async def names(backend: Backend) -> list[str]:
    return sorted([entry.name async for entry in backend.list_names()])
