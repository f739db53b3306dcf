"""The whole store in processes that fork, end, are interrupted, or lose their event loop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.store_tiers import programs
from tests.store_tiers.programs import KEYS, finished, started, value_of
from tieredkv import GetStatus, TieredStore
from tieredkv.backends import Backend, DiskBackend, ValkeyBackend
from tieredkv.testing.content import gist
from tieredkv.testing.valkey import ValkeyServer

pytestmark = pytest.mark.network


@pytest.fixture
def server(shared_server: ValkeyServer) -> Iterator[ValkeyServer]:
    shared_server.command("FLUSHALL")
    yield shared_server
    # Processes that were killed have left connections, and nothing else.
    assert shared_server.command("PING") == b"PONG"


@pytest.fixture(autouse=True)
def _only_whole_values(tmp_path: Path, server: ValkeyServer) -> Iterator[None]:
    """Whatever happened: what is there is whole, and stores that open now find nothing else."""
    yield

    async def look(backend: Backend) -> None:
        async with TieredStore("16MiB", [backend]) as store:
            listed = [str(key) async for key in store.keys(backend.name)]
            assert set(listed) <= set(KEYS)
            with await store.get_many(listed) as results:
                for key, result in zip(listed, results, strict=True):
                    assert result.status is GetStatus.HIT
                    assert result.object is not None
                    assert gist(bytes(result.object)) == gist(value_of(key))

    anyio.run(look, DiskBackend(tmp_path))
    anyio.run(look, ValkeyBackend(server.url))
    assert list((tmp_path / "tmp").iterdir()) == [], "what was being written is swept"


def test_a_fork_in_mid_flight_harms_neither(tmp_path: Path, server: ValkeyServer) -> None:
    assert finished(started(programs.fork, tmp_path, server.url)) == (0, "")


@pytest.mark.parametrize("loop", programs.LOOPS)
def test_a_process_may_end_in_mid_flight_without_closing(
    tmp_path: Path, server: ValkeyServer, loop: str
) -> None:
    assert finished(started(programs.leave, tmp_path, server.url, loop=loop)) == (0, "")


@pytest.mark.parametrize("loop", programs.LOOPS)
def test_an_interrupt_closes_the_store(tmp_path: Path, server: ValkeyServer, loop: str) -> None:
    process = started(programs.stay, tmp_path, server.url, loop=loop)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert finished(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_may_be_ended_in_mid_flight(
    tmp_path: Path, server: ValkeyServer, number: signal.Signals
) -> None:
    process = started(programs.stay, tmp_path, server.url)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert finished(process) == (-number, "")


def test_a_loop_that_is_closed_in_mid_flight_harms_no_other(
    tmp_path: Path, server: ValkeyServer
) -> None:
    status, complaints = finished(started(programs.close_loop, tmp_path, server.url))
    assert (status, "Traceback" in complaints) == (0, False), complaints


def test_two_loops_in_two_threads_share_a_directory_and_a_server(
    tmp_path: Path, server: ValkeyServer
) -> None:
    assert finished(started(programs.two_loops, tmp_path, server.url)) == (0, "")


def test_the_collector_may_run_at_every_allocation(tmp_path: Path, server: ValkeyServer) -> None:
    program = programs.collect_at_every_allocation
    assert finished(started(program, tmp_path, server.url)) == (0, "")
