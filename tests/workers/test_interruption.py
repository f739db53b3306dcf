"""Opening, using and closing, cancelled at each place where they wait: every client is closed."""

from __future__ import annotations

import pytest

from tests.interruption import interrupted, ways
from tests.workers.parts import Client, Clients, until, workers_of
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio

MOST_WAITS = 100


async def has_ended(backend: MemoryBackend) -> None:
    await until(lambda: backend._workers.num_running == 0)


async def test_closing_that_is_cancelled_can_be_repeated() -> None:
    for way in ways():
        for place in range(way == "woken", MOST_WAITS):
            clients = Clients()
            async with workers_of(2, clients) as workers:
                await workers.run_all([Client.use] * 4)
                came_so_far = await interrupted(workers.aclose(), place, way)
            assert clients.made
            assert clients.open == []
            assert workers.num_clients == 0
            if not came_so_far:
                break


async def test_opening_that_is_cancelled_leaves_no_client() -> None:
    for way in ways():
        for place in range(way == "woken", MOST_WAITS):
            backend = MemoryBackend()
            came_so_far = await interrupted(backend.open(), place, way)
            if not came_so_far:
                await backend.aclose()
                break
            await has_ended(backend)
            assert backend.medium.num_clients == 0
            await backend.open()
            await backend.aclose()
            assert backend.medium.num_clients == 0


async def test_a_job_that_is_cancelled_leaves_its_worker_usable() -> None:
    for way in ways():
        for place in range(way == "woken", MOST_WAITS):
            async with workers_of(1) as workers:
                came_so_far = await interrupted(workers.run(Client.use), place, way)
                assert await workers.run(lambda client: 1) == 1
            if not came_so_far:
                break
