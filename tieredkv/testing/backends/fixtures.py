"""What the parts of the kit have in common: one backend for each test, opened and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from tieredkv.backends.base import Backend
from tieredkv.config import MiB
from tieredkv.results import PutStatus
from tieredkv.testing.backends.hooks import BackendHooks
from tieredkv.testing.backends.requests import Source
from tieredkv.testing.leaks import LeakCheck

__all__ = ["KitFixtures"]


class KitFixtures(BackendHooks):
    """Base of the kit's parts.

    Attributes:
        sizes: Sizes of values to try, in bytes; a medium over a network may take smaller ones.
        many: How many small values make a big batch.
    """

    pytestmark: ClassVar[pytest.MarkDecorator] = pytest.mark.anyio

    sizes: Sequence[int] = (0, 1, 63, 64, 65, 4096, 100_000, 1 * MiB, 2 * MiB + 1)
    many: int = 2500

    @pytest.fixture(autouse=True)
    def surroundings(self, tmp_path: Path) -> Iterator[None]:
        """Give the test a directory, and see that it leaves nothing behind."""
        self.tmp_path = tmp_path
        with LeakCheck(leases=False):
            yield

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        """Return the backend under test, open."""
        async with self.opened() as backend:
            yield backend

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Backend]:
        """Open a new backend over the medium and close it."""
        backend = self.make_backend()
        await backend.open()
        try:
            yield backend
        finally:
            await backend.aclose()

    async def write(self, backend: Backend, *items: tuple[str, bytes]) -> None:
        """Store values through the backend."""
        outcomes = await backend.write_many([Source(*item).request() for item in items])
        assert [outcome.status for outcome in outcomes] == [PutStatus.STORED] * len(items)
