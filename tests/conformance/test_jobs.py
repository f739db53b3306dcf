"""How a batch is cut into jobs for the workers: small values together, large ones alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tieredkv.backends import ReadRequest, WriteRequest
from tieredkv.results import ReadOutcome, StatOutcome, WriteOutcome
from tieredkv.testing.backends.requests import Landing, Source
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio

SIZES = {"a": 4, "b": 5, "c": 1, "L": 8, "d": 3, "e": 6, "f": 1, "g": 7}


class Cut(MemoryBackend):
    """Remembers its jobs, each by the names in it."""

    job_bytes = 10
    alone_bytes = 8

    def __init__(self) -> None:
        super().__init__(num_workers=1)
        self.jobs: list[str] = []

    def _group_of(self, name: str) -> int:
        return "aceg".find(name) < 0

    def _read_group(
        self, client: MemoryMedium, requests: Sequence[ReadRequest]
    ) -> Sequence[ReadOutcome]:
        self.jobs.append("".join(request.name for request in requests))
        return super()._read_group(client, requests)

    def _write_group(
        self, client: MemoryMedium, requests: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        self.jobs.append("".join(request.name for request in requests))
        return super()._write_group(client, requests)

    def _stat_group(self, client: MemoryMedium, names: Sequence[str]) -> Sequence[StatOutcome]:
        self.jobs.append("".join(names))
        return super()._stat_group(client, names)


@pytest.fixture
async def backend(anyio_backend: object) -> AsyncIterator[Cut]:
    backend = Cut()
    await backend.open()
    yield backend
    await backend.aclose()


async def write_all(backend: Cut) -> None:
    await backend.write_many([Source(name, bytes(size)).request() for name, size in SIZES.items()])


async def test_small_values_share_jobs_of_about_a_size_and_large_ones_are_alone(
    backend: Cut,
) -> None:
    await write_all(backend)
    assert backend.jobs == ["abc", "L", "def", "g"]
    backend.jobs.clear()
    await backend.read_many([Landing(name, size).request() for name, size in SIZES.items()])
    assert backend.jobs == ["abc", "L", "def", "g"]


async def test_jobs_of_writes_may_have_a_size_of_their_own(backend: Cut) -> None:
    backend.write_job_bytes = 5
    await write_all(backend)
    assert backend.jobs == ["ab", "L", "cde", "fg"]


async def test_only_what_belongs_together_shares_a_job(backend: Cut) -> None:
    backend.has_groups = True
    await write_all(backend)
    assert backend.jobs == ["ace", "g", "L", "bdf"]
    backend.jobs.clear()
    await backend.stat_many(tuple(SIZES))
    assert backend.jobs == ["aceg", "bLdf"]
