"""Capacity: a limit that holds while values are written, and who has to go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest

from tests.calls import get, names, opened, put, size
from tests.disk.calls import survey
from tests.disk.layout import files_under, path_in, used_bytes
from tests.disk.mounts import in_own_mounts
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import ConfigError
from tieredkv.results import PutStatus, WriteOutcome
from tieredkv.testing.backends.requests import Source

pytestmark = pytest.mark.anyio


async def test_eight_writers_at_once_fill_it_and_evict_no_more_than_they_must(
    tmp_path: Path,
) -> None:
    value = bytes(1 * MiB)
    async with opened(DiskBackend(tmp_path, capacity="100MiB", num_workers=8)) as backend:

        async def write(writer: int) -> None:
            for at in range(0, 125, 25):
                sources = [Source(f"{writer}-{at + n}", value).request() for n in range(25)]
                outcomes = await backend.write_many(sources)
                assert {outcome.status for outcome in outcomes} == {PutStatus.STORED}

        async with anyio.create_task_group() as tasks:
            for writer in range(8):
                tasks.start_soon(write, writer)
        assert used_bytes(tmp_path) == 100 * MiB
        assert backend._volume.survey.space is not None
        assert backend._volume.survey.space.used_bytes == 100 * MiB


def test_it_is_never_exceeded_meanwhile(tmp_path: Path) -> None:
    """On a file system of its own: what that says it holds is true at every moment."""
    script = """
import os, subprocess, sys, threading
import anyio
from tests.calls import opened
from tieredkv.backends import DiskBackend
from tieredkv.config import MiB
from tieredkv.testing.backends.requests import Source

root = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "none", root], check=True)
sizes = [1 * MiB, 3 * MiB, 64 * 1024, 7 * MiB]
seen = []
ended = threading.Event()

def watch():
    while not ended.wait(0.0005):
        usage = os.statvfs(root)
        seen.append((usage.f_blocks - usage.f_bfree) * usage.f_frsize)

async def main():
    async with opened(DiskBackend(root, capacity="40MiB", num_workers=8)) as backend:
        for at in range(6):
            values = [Source(f"{at}-{n}", bytes(sizes[n % 4])).request() for n in range(40)]
            outcomes = await backend.write_many(values)
            assert {str(outcome.status) for outcome in outcomes} == {"stored"}, outcomes

thread = threading.Thread(target=watch)
thread.start()
try:
    anyio.run(main)
finally:
    ended.set()
    thread.join()
print(len(seen), max(seen), 40 * MiB)
assert 30 * MiB < max(seen) <= 40 * MiB, max(seen)
"""
    in_own_mounts(script, tmp_path)


async def test_overwrites_count_once(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=64 * KiB)) as backend:
        await put(backend, "other", bytes(4 * KiB))
        for number in range(50):
            await put(backend, "same", bytes(8 * KiB + number))
        assert await names(backend) == ["other", "same"]
        assert await size(backend, "same") == 8 * KiB + 49


async def test_deleted_values_make_room(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=16 * KiB)) as backend:
        for name in "abcd":
            await put(backend, name, bytes(4 * KiB))
        await backend.delete_many(["b", "c"])
        await put(backend, "e", bytes(8 * KiB))
        assert await names(backend) == ["a", "d", "e"]


async def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=16 * KiB)) as backend:
        for name in "abcd":
            await put(backend, name, bytes(4 * KiB))
        await get(backend, "a", 4 * KiB)
        await put(backend, "b", bytes(4 * KiB))  # room for it before its old value goes: c
        await put(backend, "e", bytes(4 * KiB))
        assert await names(backend) == ["a", "b", "d", "e"]
        await put(backend, "f", bytes(8 * KiB))
        assert await names(backend) == ["b", "e", "f"]


async def test_small_values_take_a_block_each(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=40 * KiB)) as backend:
        for number in range(30):
            await put(backend, f"{number:02d}", b"")
        assert await names(backend) == [f"{number:02d}" for number in range(20, 30)]


async def test_a_value_over_the_capacity_is_refused_and_nothing_evicted(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=10_000)) as backend:
        await put(backend, "small", b"value")
        assert await put(backend, "large", bytes(8 * KiB + 1)) == WriteOutcome(
            PutStatus.REJECTED, "too_large"
        )
        assert await names(backend) == ["small"]
        assert (await put(backend, "fits", bytes(8 * KiB))).status is PutStatus.STORED


async def test_writers_that_need_all_of_it_wait_for_each_other(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=2 * MiB)) as backend:
        sources = [Source(f"{number}", bytes([number]) * (2 * MiB)) for number in range(12)]
        outcomes = await backend.write_many([source.request() for source in sources])
        assert {outcome.status for outcome in outcomes} == {PutStatus.STORED}
        (left,) = await names(backend)
        assert await get(backend, left, 2 * MiB) == bytes([int(left)]) * (2 * MiB)


async def test_a_failed_write_gives_its_room_back(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=8 * KiB)) as backend:
        path_in(tmp_path, "bad").mkdir(parents=True)  # no file can have this name
        (path_in(tmp_path, "bad") / "in the way").touch()
        assert (await put(backend, "bad", b"value")).status is PutStatus.FAILED
        await put(backend, "a", b"value")
        await put(backend, "b", b"value")
        assert {"a", "b"} <= set(await names(backend))


async def test_a_smaller_capacity_is_met_when_the_directory_opens(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:
        for number in range(20):
            name = f"{number:02d}"
            await put(backend, name, bytes(4 * KiB))
            os.utime(path_in(tmp_path, name), (0, 1_000_000 - number))  # the last is the oldest
    async with opened(DiskBackend(tmp_path, capacity=20 * KiB)) as backend:
        assert await names(backend) == ["00", "01", "02", "03", "04"]


@pytest.mark.parametrize("role", ["owner", "member"])
async def test_the_order_of_use_outlives_the_process(tmp_path: Path, role: str) -> None:
    backend, owner = (DiskBackend(tmp_path, capacity=12 * KiB) for _ in range(2))
    async with opened(backend):
        for name in "abc":
            await put(backend, name, bytes(4 * KiB))
            os.utime(path_in(tmp_path, name), (0, 1_000_000))
    if role == "member":
        await owner.open()
    async with opened(backend):
        await get(backend, "a", 4 * KiB)
        assert path_in(tmp_path, "a").stat().st_mtime > 1_000_000
        assert path_in(tmp_path, "b").stat().st_mtime == 1_000_000
    await owner.aclose()
    async with opened(backend):
        await put(backend, "d", bytes(8 * KiB))
        assert await names(backend) == ["a", "d"]


async def test_files_that_are_not_ours_are_never_removed(tmp_path: Path) -> None:
    objects = tmp_path / "objects" / "00"
    objects.mkdir(parents=True)
    alien = [objects / "README.Txt", tmp_path / "notes", tmp_path / "tmp" / "notes"]
    alien[2].parent.mkdir()
    for path in alien:
        path.write_bytes(bytes(40 * KiB))
        os.utime(path, (0, 0))
    async with opened(DiskBackend(tmp_path, capacity=8 * KiB)) as backend:
        for number in range(9):
            await put(backend, f"{number}", bytes(4 * KiB))
        assert await names(backend) == ["7", "8"]
    assert all(path.exists() for path in alien)


async def test_a_survey_finds_what_others_did(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=16 * KiB)) as backend:
        for name in "abcd":
            await put(backend, name, bytes(4 * KiB))
        path_in(tmp_path, "b").unlink()
        path_in(tmp_path, "c").unlink()
        new = path_in(tmp_path, "x")
        new.parent.mkdir(exist_ok=True)
        new.write_bytes(bytes(8 * KiB))
        await survey(backend)
        assert await names(backend) == ["a", "d", "x"], "exactly the capacity"
        (path_in(tmp_path, "y").parent).mkdir(exist_ok=True)
        path_in(tmp_path, "y").write_bytes(bytes(4 * KiB))
        await survey(backend)
        assert await names(backend) == ["d", "x", "y"]


async def test_what_others_use_is_not_evicted(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=12 * KiB)) as backend:
        for name in "abc":
            await put(backend, name, bytes(4 * KiB))
        now_ns = time.time_ns()
        os.utime(path_in(tmp_path, "a"), ns=(now_ns, now_ns))  # as another reader does
        await put(backend, "d", bytes(4 * KiB))
        assert await names(backend) == ["a", "c", "d"]


async def test_surveys_do_not_lose_what_is_written_meanwhile(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=4 * MiB)) as backend:
        for at in range(20):
            backend._volume.survey.due = 1e-9
            sources = [Source(f"{at}-{n}", bytes(40 * KiB)).request() for n in range(60)]
            await backend.write_many(sources)
            await backend.delete_many([f"{at}-{n}" for n in range(0, 60, 7)])
        await survey(backend)
        assert backend._volume.survey.space is not None
        assert backend._volume.survey.space.used_bytes == used_bytes(tmp_path)
        assert backend._volume.survey.space.count == len(files_under(tmp_path))


@pytest.mark.parametrize("capacity", ["4G", -1, 0, "1kB", 4095, True, 1.5, "lots"])
def test_a_capacity_that_cannot_work_is_refused(tmp_path: Path, capacity: str) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        DiskBackend(tmp_path, capacity=capacity)
