"""A store over disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import TieredStore
from tieredkv.config import MiB


@pytest.fixture
def disk(tmp_path: Path) -> StoppableDisk:
    return StoppableDisk(tmp_path / "disk")


@pytest.fixture
async def store(disk: StoppableDisk, anyio_backend: object) -> AsyncIterator[TieredStore]:
    """L1 of 4 MiB over disk; opened in the fixture's task, used in the test's."""
    async with TieredStore(l1=4 * MiB, l2=[disk]) as opened:
        yield opened
