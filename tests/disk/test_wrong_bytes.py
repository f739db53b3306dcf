"""Bytes that are not the value: found, each by itself, and never an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.calls import opened
from tests.disk.layout import path_in
from tieredkv.backends import DiskBackend
from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.config import KiB, MiB
from tieredkv.errors import SizeMismatchError
from tieredkv.frames import TRAILER_BYTES, FrameCheck, seal
from tieredkv.results import GetStatus, ReadOutcome
from tieredkv.testing.content import content

pytestmark = pytest.mark.anyio

SIZES = [0, 1, 64 * KiB, 256 * KiB - 1, 256 * KiB, 256 * KiB + 1, 1 * MiB, 3 * MiB + 17]


def frame(name: str, payload: bytes) -> WriteRequest:
    block = bytearray(payload) + bytearray(TRAILER_BYTES)

    def sealed() -> memoryview:
        seal(memoryview(block), name, generation=7)
        return memoryview(block).toreadonly()

    return WriteRequest(name, len(block), sealed)


def request(name: str, nbytes: int) -> tuple[ReadRequest, bytearray]:
    payload, trailer = bytearray(nbytes), bytearray(TRAILER_BYTES)
    check = FrameCheck(name, memoryview(payload), memoryview(trailer))
    return ReadRequest(name, (memoryview(payload), memoryview(trailer)), check), payload


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[DiskBackend]:
    async with opened(DiskBackend(tmp_path)) as backend:
        yield backend


async def test_frames_land_in_pieces_and_prove_good(backend: DiskBackend) -> None:
    values = {f"{size}": content("whole", size) for size in SIZES}
    await backend.write_many([frame(*item) for item in values.items()])
    reads = [request(name, len(value)) for name, value in values.items()]
    outcomes = await backend.read_many([read for read, _ in reads])
    assert outcomes == [ReadOutcome(GetStatus.HIT)] * len(SIZES)
    assert [bytes(payload) for _, payload in reads] == list(values.values())


@pytest.mark.parametrize("place", [0, 300_000, 999_999, 1_000_000, 1_000_063])
async def test_one_changed_byte_is_found(backend: DiskBackend, place: int) -> None:
    names = [f"{number}" for number in range(5)]
    await backend.write_many([frame(name, content(name, 1_000_000)) for name in names])
    path = path_in(backend.path, "2")
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 1
    path.write_bytes(damaged)
    outcomes = await backend.read_many([request(name, 1_000_000)[0] for name in names])
    wanted = GetStatus.CORRUPT if place != 1_000_000 else GetStatus.MISS  # no magic: not ours
    assert [outcome.status for outcome in outcomes] == [
        wanted if name == "2" else GetStatus.HIT for name in names
    ]


async def test_values_that_were_swapped_are_found(backend: DiskBackend) -> None:
    await backend.write_many([frame(name, content(name, 500_000)) for name in ("a", "b", "c")])
    paths = [path_in(backend.path, name) for name in ("a", "b")]
    values = [path.read_bytes() for path in paths]
    for path, value in zip(paths, reversed(values), strict=True):
        path.write_bytes(value)
    outcomes = await backend.read_many([request(name, 500_000)[0] for name in ("a", "b", "c")])
    assert [outcome.status for outcome in outcomes] == [
        GetStatus.CORRUPT,
        GetStatus.CORRUPT,
        GetStatus.HIT,
    ]


@pytest.mark.parametrize("left", [0, 1, 499_999, 500_063])
async def test_a_truncated_value_is_of_another_size(backend: DiskBackend, left: int) -> None:
    await backend.write_many([frame(name, content(name, 500_000)) for name in ("a", "b")])
    with path_in(backend.path, "a").open("r+b") as file:
        file.truncate(left)
    truncated, whole = await backend.read_many([request(name, 500_000)[0] for name in ("a", "b")])
    assert truncated.status is GetStatus.REJECTED
    assert isinstance(truncated.error, SizeMismatchError)
    assert truncated.error.stored == left
    assert whole.status is GetStatus.HIT


async def test_a_value_that_shrinks_while_it_is_read_is_no_hit(backend: DiskBackend) -> None:
    await backend.write_many([frame("a", content("a", 1 * MiB))])
    read, _ = request("a", 1 * MiB)
    path = path_in(backend.path, "a")

    class Truncating(FrameCheck):
        def feed(self, landed: memoryview) -> None:
            super().feed(landed)
            with path.open("r+b") as file:
                file.truncate(600_000)

    shrinking = ReadRequest("a", read.buffers, Truncating("a", *read.buffers))
    (outcome,) = await backend.read_many([shrinking])
    assert outcome.status is GetStatus.UNKNOWN
    assert "ended" in str(outcome.error)


async def test_a_reader_keeps_the_value_that_it_has_opened(backend: DiskBackend) -> None:
    """Whatever becomes of the name: replaced, deleted."""
    old, new = content("old", 2 * MiB), content("new", 2 * MiB)
    await backend.write_many([frame("a", old)])
    read, payload = request("a", 2 * MiB)
    path = path_in(backend.path, "a")
    replacement = path.with_name("replacement")
    replacement.write_bytes(new + bytes(TRAILER_BYTES))

    class Replacing(FrameCheck):
        def feed(self, landed: memoryview) -> None:
            super().feed(landed)
            if replacement.exists():
                replacement.rename(path)
            else:
                path.unlink(missing_ok=True)

    (outcome,) = await backend.read_many(
        [ReadRequest("a", read.buffers, Replacing("a", *read.buffers))]
    )
    assert (outcome.status, bytes(payload)) == (GetStatus.HIT, old)
    assert (await backend.read_many([request("a", 2 * MiB)[0]]))[0].status is GetStatus.MISS
