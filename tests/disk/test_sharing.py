"""How many workers share a batch, and what becomes of the others when one value of it fails."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.calls import get, opened, put
from tests.disk.layout import path_in
from tests.disk.test_wrong_bytes import frame, request
from tieredkv.backends import DiskBackend
from tieredkv.backends.base import ReadRequest
from tieredkv.config import KiB
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.backends.requests import Source

pytestmark = pytest.mark.anyio

NUM_WORKERS = 4
NAMES = [f"name-{number}" for number in range(4 * NUM_WORKERS)]
VALUE_BYTES = 512 * KiB  # four of them make a job


class Check:
    """Says HIT, and does something in the worker before."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def feed(self, landed: memoryview) -> None:
        pass

    def result(self) -> GetStatus:
        self._act()
        return GetStatus.HIT


def reads(act: Callable[[], object]) -> list[ReadRequest]:
    return [ReadRequest(name, (memoryview(bytearray(VALUE_BYTES)),), Check(act)) for name in NAMES]


async def test_small_values_in_memory_are_read_by_as_many_threads_as_there_are_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    threads: set[int] = set()
    async with opened(DiskBackend(tmp_path, num_workers=NUM_WORKERS)) as backend:
        await backend.write_many([Source(name, bytes(VALUE_BYTES)).request() for name in NAMES])
        backend._volume.reads_disk = False
        outcomes = await backend.read_many(reads(lambda: threads.add(threading.get_ident())))
    assert {outcome.status for outcome in outcomes} == {GetStatus.HIT}
    assert len(threads) == 1


async def test_where_the_disk_is_waited_for_all_workers_wait_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    all_in = threading.Barrier(NUM_WORKERS)
    async with opened(DiskBackend(tmp_path, num_workers=NUM_WORKERS)) as backend:
        await backend.write_many([Source(name, bytes(VALUE_BYTES)).request() for name in NAMES])
        backend._volume.reads_disk = True
        outcomes = await backend.read_many(reads(lambda: all_in.wait(timeout=30)))
    assert {outcome.status for outcome in outcomes} == {GetStatus.HIT}


async def test_a_value_in_the_page_cache_is_known_to_be_there(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:
        await put(backend, "name", b"value")
        assert await get(backend, "name", 5) == b"value"
        assert backend._volume.reads_disk is (sys.platform != "linux")


async def test_hits_misses_and_failures_of_one_job_leave_each_other_alone(tmp_path: Path) -> None:
    def fail() -> None:
        raise MemoryError("in the check")

    async with opened(DiskBackend(tmp_path)) as backend:
        written = [frame(name, bytes(9)) for name in ("first", "changed", "check", "last")]
        written.append(frame("longer", bytes(10)))
        outcomes = await backend.write_many(written)
        assert {outcome.status for outcome in outcomes} == {PutStatus.STORED}
        path_in(tmp_path, "changed").write_bytes(path_in(tmp_path, "first").read_bytes())
        path_in(tmp_path, "directory").mkdir(parents=True)
        names = ["first", "absent", "longer", "changed", "directory", "last"]
        requests = [request(name, 9)[0] for name in names]
        requests.insert(5, ReadRequest("check", request("check", 9)[0].buffers, Check(fail)))
        results = await backend.read_many(requests)
    assert [result.status for result in results] == [
        GetStatus.HIT,
        GetStatus.MISS,
        GetStatus.REJECTED,
        GetStatus.CORRUPT,
        GetStatus.UNKNOWN,
        GetStatus.UNKNOWN,
        GetStatus.HIT,
    ]
    assert "EISDIR" in str(results[4].error)
    assert "in the check" in str(results[5].error)
