"""Short calls: one value in, one value out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.lowlevel import checkpoint

from tieredkv.backends import DiskBackend
from tieredkv.results import GetStatus, WriteOutcome
from tieredkv.testing.backends.requests import Landing, Source


@asynccontextmanager
async def opened(backend: DiskBackend) -> AsyncIterator[DiskBackend]:
    """Open a backend and close it."""
    await backend.open()
    try:
        yield backend
    finally:
        await backend.aclose()


async def put(backend: DiskBackend, name: str, value: bytes) -> WriteOutcome:
    (outcome,) = await backend.write_many([Source(name, value).request()])
    return outcome


async def get(backend: DiskBackend, name: str, nbytes: int) -> bytes | None:
    """Return a value of a known size, None for a miss."""
    landing = Landing(name, nbytes)
    (outcome,) = await backend.read_many([landing.request()])
    if outcome.status is GetStatus.MISS:
        return None
    assert outcome.status is GetStatus.HIT, outcome
    return landing.value


async def size(backend: DiskBackend, name: str) -> int | None:
    (outcome,) = await backend.stat_many([name])
    return outcome.stored_bytes if outcome.status is GetStatus.HIT else None


async def names(backend: DiskBackend) -> list[str]:
    return sorted([entry.name async for entry in backend.list_names()])


async def survey(backend: DiskBackend) -> None:
    """Let the backend find that a survey is due, and wait until that has ended."""
    backend._volume.survey.due = 1e-9
    await get(backend, "whatever", 1)
    while backend._surveying:
        await checkpoint()
