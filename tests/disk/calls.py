"""A call of the disk backend's own."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

from tests.calls import get
from tieredkv.backends import DiskBackend


async def survey(backend: DiskBackend) -> None:
    """Let the backend find that a survey is due, and wait until that has ended."""
    backend._volume.survey.due = 1e-9
    await get(backend, "whatever", 1)
    while backend._surveying:
        await checkpoint()
