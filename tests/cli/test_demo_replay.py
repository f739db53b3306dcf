"""Replaying: what is served, from where, and that nothing wrong goes unnoticed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tieredkv import GetResults, Key, PutResult, TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.cli.contents import Contents
from tieredkv.cli.replay import COMPUTED, Replay, Tally
from tieredkv.cli.workload import Request, chat
from tieredkv.config import KiB, MiB

pytestmark = pytest.mark.anyio

L1_BYTES = 1 * MiB
CONTENTS = Contents(0, 64 * KiB)


def request(*runs: range) -> Request:
    return Request(0.0, runs)


def replay_over(store: TieredStore) -> Replay:
    return Replay(store, CONTENTS, tiers=("l1", "disk"), l1_bytes=L1_BYTES)


async def replayed(requests: Iterable[Request], path: Path, **settings: object) -> Tally:
    async with TieredStore(L1_BYTES, [DiskBackend(path)], **settings) as store:  # type: ignore[arg-type]
        replay = replay_over(store)
        await replay.run(requests)
    return replay.tally


def served(tally: Tally) -> dict[str, int]:
    return {name: traffic.chunks for name, traffic in tally.traffic.items()}


async def test_what_is_not_known_is_computed_and_comes_from_l1_afterwards(tmp_path: Path) -> None:
    tally = await replayed([request(range(4)), request(range(6))], tmp_path)
    assert served(tally) == {"l1": 4, "disk": 0, COMPUTED: 6}
    assert (tally.requests, tally.chunks, tally.wrong_values) == (2, 10, 0)
    assert tally.traffic["l1"].verified_bytes == 4 * CONTENTS.value_bytes


async def test_what_l1_has_evicted_comes_from_disk_and_is_verified(tmp_path: Path) -> None:
    crowd = (request(range(n, n + 8)) for n in range(100, 200, 8))
    tally = await replayed([request(range(4)), *crowd, request(range(4))], tmp_path)
    assert tally.traffic["disk"].chunks == 4
    assert tally.traffic["disk"].verified_bytes == 4 * CONTENTS.value_bytes
    assert tally.wrong_values == 0


async def test_only_the_head_of_a_chain_is_served(tmp_path: Path) -> None:
    broken = request(range(2), range(9, 10), range(2, 4))
    tally = await replayed([request(range(4)), broken], tmp_path)
    assert served(tally) == {"l1": 2, "disk": 0, COMPUTED: 4 + 3}


async def test_a_chain_larger_than_l1_is_served_whole(tmp_path: Path) -> None:
    tally = await replayed([request(range(40)), request(range(40))], tmp_path)
    assert served(tally)[COMPUTED] == 40
    assert served(tally)["l1"] + served(tally)["disk"] == 40
    assert tally.wrong_values == 0


async def test_a_chunk_that_a_chain_holds_twice_is_computed_once(tmp_path: Path) -> None:
    tally = await replayed([request(range(2), range(2))], tmp_path)
    assert served(tally) == {"l1": 0, "disk": 0, COMPUTED: 2}


async def test_a_chat_hits_both_tiers_and_every_hit_is_right(tmp_path: Path) -> None:
    tally = await replayed(islice(chat(0), 60), tmp_path)
    assert tally.wrong_values == 0
    for tier in ("l1", "disk"):
        assert tally.traffic[tier].chunks > 0
        assert tally.traffic[tier].verified_bytes == tally.traffic[tier].nbytes


# -- what is wrong is noticed ---------------------------------------------------------------------


def file_of(chunk: int, path: Path) -> Path:
    """Find a chunk's file by what it holds."""
    value = CONTENTS.value(chunk)
    files = (file for file in path.rglob("*") if file.is_file())
    return next(file for file in files if file.read_bytes().startswith(value))


def spoilt(path: Path, spoil: Callable[[], None]) -> Iterator[Request]:
    """Chunks 0 to 3, others until L1 has evicted them, then the damage, and 0 to 3 again."""
    yield request(range(4))
    for n in range(100, 200, 8):
        yield request(range(n, n + 8))
    spoil()
    yield request(range(4))


async def test_a_wrong_byte_that_a_tier_hands_out_is_found(tmp_path: Path) -> None:
    def spoil() -> None:
        with file_of(2, tmp_path).open("r+b") as file:
            file.seek(12_345)
            byte = file.read(1)[0]
            file.seek(12_345)
            file.write(bytes([byte ^ 0x10]))

    tally = await replayed(spoilt(tmp_path, spoil), tmp_path, integrity="size")
    assert tally.wrong_values == 1
    assert tally.faults == [
        "chunk 2 from disk, as it came: 1 of 65536 bytes are wrong, the first is byte 12345"
    ]
    assert tally.traffic["disk"].verified_bytes == 3 * CONTENTS.value_bytes


async def test_values_that_a_tier_has_swapped_are_found(tmp_path: Path) -> None:
    def spoil() -> None:
        one, two, between = file_of(1, tmp_path), file_of(2, tmp_path), tmp_path / "between"
        one.rename(between)
        two.rename(one)
        between.rename(two)

    tally = await replayed(spoilt(tmp_path, spoil), tmp_path, integrity="size")
    assert tally.faults == [
        "chunk 1 from disk, as it came: the value of chunk 2 instead",
        "chunk 2 from disk, as it came: the value of chunk 1 instead",
    ]


class Scribbler(TieredStore):
    """Writes into memory that is leased, as a defect of the pool would."""

    async def get_many(
        self, keys: Iterable[Key], *, sizes: Iterable[int | None] | None = None
    ) -> GetResults:
        self.leased = await super().get_many(keys, sizes=sizes)
        return self.leased

    async def put_many(
        self, items: Iterable[tuple[Key, object]], *, ttl_s: float | None = None
    ) -> list[PutResult]:
        results = await super().put_many(items, ttl_s=ttl_s)
        for result in getattr(self, "leased", ()):
            ctypes.memset(result.object.address, 0xFF, 1)
        return results


async def test_a_byte_that_changes_during_a_lease_is_found() -> None:
    async with Scribbler(L1_BYTES) as store:
        replay = replay_over(store)
        await replay.run([request(range(1)), request(range(2))])
    assert replay.tally.faults == [
        "chunk 0 from l1, at the end of its lease: 1 of 65536 bytes are wrong, the first is byte 0"
    ]
    assert replay.tally.wrong_values == 1


async def test_of_many_wrong_values_the_first_are_named_and_all_counted(tmp_path: Path) -> None:
    class Other(Contents):
        def value(self, chunk: int) -> bytes:
            return super().value(chunk + 1)

    async with TieredStore(L1_BYTES) as store:
        replay = Replay(store, Other(0, 16), tiers=("l1",), l1_bytes=L1_BYTES)
        await replay.run([request(range(25)), request(range(25))])
    assert replay.tally.wrong_values == 25
    assert len(replay.tally.faults) == 10
    assert replay.tally.traffic["l1"].verified_bytes == 0
