"""Clients stay few when worker threads come and go: bursts, pauses, and others who use threads."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.conformance.media import Disk, Memory
from tieredkv.testing.backends.hooks import BackendHooks
from tieredkv.testing.backends.requests import Source

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

IDLE_S = 11  # asyncio's and trio's pools keep idle threads for 10


@pytest.mark.parametrize("medium", [Memory, Disk])
async def test_clients_stay_few_over_three_bursts(
    medium: type[BackendHooks], tmp_path: Path
) -> None:
    hooks = medium()
    hooks.tmp_path = tmp_path
    backend = hooks.make_backend()
    await backend.open()
    threads: set[threading.Thread] = set()
    num_workers = 0
    for gap in (0, IDLE_S, IDLE_S):
        await anyio.sleep(gap)
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                source = Source(f"name-{number}", bytes(100_000))
                tasks.start_soon(backend.write_many, [source.request()])
                tasks.start_soon(backend.stat_many, [f"name-{number}"])
                tasks.start_soon(to_thread.run_sync, threading.get_ident)  # others use them, too
        threads |= set(threading.enumerate())
        counts = hooks.client_counts(backend)
        assert counts is not None
        num_clients, num_workers = counts
        assert num_clients <= num_workers
    assert len(threads) > num_workers + 1, "the pool kept its threads: nothing was shown"
    await backend.aclose()
