"""Several processes over one directory, and processes that are killed."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.calls import get, names, opened, put
from tests.disk.calls import survey
from tests.disk.layout import files_under, path_in, used_bytes
from tests.disk.programs import LARGE_BYTES, heard, running, tell, value_of
from tieredkv.backends import DiskBackend
from tieredkv.backends.disk.backend import Durability
from tieredkv.config import KiB, MiB
from tieredkv.results import GetStatus
from tieredkv.testing.backends.requests import Landing

pytestmark = pytest.mark.anyio


def test_two_processes_overwrite_one_name_and_each_read_is_one_value_whole(
    tmp_path: Path,
) -> None:
    async def read_until_ended(writer: subprocess.Popen[str]) -> set[int]:
        seen: set[int] = set()
        async with opened(DiskBackend(tmp_path)) as backend:
            while writer.poll() is None:
                landing = Landing("shared", LARGE_BYTES)
                (outcome,) = await backend.read_many([landing.request()])
                if outcome.status is GetStatus.MISS:
                    assert not seen, "a value that was there is there until it is replaced"
                    continue
                assert outcome.status is GetStatus.HIT, outcome
                value = landing.value
                assert value.count(value[0]) == LARGE_BYTES, "parts of two values"
                seen.add(value[0])
        return seen

    with (
        running("overwrite", tmp_path, 0, 200) as one,
        running("overwrite", tmp_path, 100, 200) as two,
    ):
        seen = anyio.run(read_until_ended, one)
        assert (one.wait(), two.wait()) == (0, 0)
    assert min(seen) < 100 <= max(seen), "values of both were read"
    assert files_under(tmp_path) == [path_in(tmp_path, "shared")]


@pytest.mark.parametrize("durability", ["none", "fsync"])
async def test_after_kill_9_there_are_only_whole_values_within_the_capacity(
    tmp_path: Path, durability: Durability
) -> None:
    capacity = 6 * MiB
    rng = random.Random(durability)
    told: list[str] = []
    for _ in range(6):
        with running("fill", tmp_path, capacity, "v", len(told)) as writer:
            told += [heard(writer) for _ in range(rng.randrange(1, 60))]
            writer.kill()
            assert writer.stdout is not None
            told += writer.stdout.read().split()
        async with opened(
            DiskBackend(tmp_path, capacity=capacity, durability=durability)
        ) as backend:
            stored = await names(backend)
            assert set(stored) <= {*told, f"v-{len(told)}"}, "one may be stored and not told of"
            assert set(told[-5:]) <= set(stored), "old values hit"
            for name in stored:
                assert await get(backend, name, len(value_of(name))) == value_of(name)
            assert used_bytes(tmp_path) <= capacity
            assert len(list((tmp_path / "tmp").iterdir())) == 1, "but for our own, all is swept"


async def test_what_a_killed_process_held_fits_a_smaller_capacity(tmp_path: Path) -> None:
    with running("fill", tmp_path, 64 * MiB, "v", 0) as writer:
        for _ in range(200):
            heard(writer)
    written_us = {
        path: path.stat().st_mtime_ns // 1000  # many are written in one tick of the system's clock
        for path in files_under(tmp_path)
        if "objects" in path.parts
    }
    async with opened(DiskBackend(tmp_path, capacity=4 * MiB)) as backend:
        stored = await names(backend)
        assert used_bytes(tmp_path) <= 4 * MiB
        kept = {path_in(tmp_path, name): name for name in stored}
        oldest_us = min(written_us[path] for path in kept)
        assert all(used_us <= oldest_us for path, used_us in written_us.items() if path not in kept)
        assert 0 < len(kept) < len(written_us)
        for name in kept.values():
            assert await get(backend, name, len(value_of(name))) == value_of(name)


async def test_temporary_files_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    with running("hold", tmp_path, 1 * MiB) as other:
        assert heard(other) == "True"
        (theirs,) = (tmp_path / "tmp").iterdir()
        (theirs / "being written").write_bytes(b"half")
        async with opened(DiskBackend(tmp_path)) as backend:
            await survey(backend)
            assert (theirs / "being written").exists()
            assert tell(other, "put v-1") == "stored"
            other.kill()
            other.wait()
            await survey(backend)
            assert not theirs.exists()
            assert await get(backend, "v-1", len(value_of("v-1"))) == value_of("v-1")
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_one_process_owns_the_directory_and_the_next_takes_over(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=8 * KiB)) as backend:

        async def is_owner() -> object:
            return (await backend.status()).details["is_owner"]

        assert await is_owner() is True
        with running("hold", tmp_path, 8 * KiB) as other:
            assert heard(other) == "False"
            await backend.aclose()
            await backend.open()
            assert await is_owner() is True, "the other one has not looked yet"
        await backend.aclose()
        with running("hold", tmp_path, 8 * KiB) as other:
            assert heard(other) == "True"
            await backend.open()
            assert await is_owner() is False
            other.kill()
            other.wait()
            await survey(backend)
            assert await is_owner() is True
            for number in range(5):
                await put(backend, f"{number}", bytes(4 * KiB))
            assert await names(backend) == ["3", "4"]


async def test_the_owner_keeps_what_others_write_within_the_capacity(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity=1 * MiB)) as backend:
        with running("hold", tmp_path, 1 * MiB) as other:
            assert heard(other) == "False"
            for number in range(20):
                assert tell(other, f"put v-{number}") == "stored"
            await survey(backend)
            assert used_bytes(tmp_path) <= 1 * MiB
            assert tell(other, "get v-19") == "True"
            assert tell(other, "get v-0") in ("True", "False")
            value = await get(backend, "v-19", len(value_of("v-19")))
            assert value == value_of("v-19"), "not in the index before, and found"


@pytest.mark.parametrize("seen_s", [0, 4_000_000_000], ids=["long ago", "by a wrong clock"])
async def test_while_the_owner_is_idle_those_who_write_see_to_the_capacity(
    tmp_path: Path, seen_s: int
) -> None:
    with running("hold", tmp_path, 8 * KiB) as owner:
        assert heard(owner) == "True"
        async with opened(DiskBackend(tmp_path, capacity=8 * KiB)) as backend:
            for number in range(6):
                await put(backend, f"{number}", bytes(4 * KiB))
                os.utime(path_in(tmp_path, f"{number}"), (0, 1_000_000 + number))
            await survey(backend)
            assert len(await names(backend)) == 6, "it has an owner"
            os.utime(tmp_path / "lock", (seen_s, seen_s))
            await survey(backend)
            assert await names(backend) == ["4", "5"]


async def test_a_forked_child_does_not_keep_the_directory(tmp_path: Path) -> None:
    backend = DiskBackend(tmp_path)
    async with opened(backend):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    try:
        async with opened(backend):
            assert (await backend.status()).details["is_owner"] is True
    finally:
        child.communicate()
