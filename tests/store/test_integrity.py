"""Values prove themselves: checksums, expiry, bare and framed ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import (
    GetStatus,
    L1Config,
    PutStatus,
    TieredStore,
    WriteThrough,
)
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import OutOfMemoryError, SizeMismatchError, TierError
from tieredkv.testing.content import gist
from tieredkv.testing.faults import Fault, FaultKind, FaultyBackend
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio


def evict_all(store: TieredStore) -> None:
    inside(store).l1.clear()


async def test_a_value_expires_in_every_tier(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("brief", b"1", ttl_s=50)
    await store.put("lasting", b"2")
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: later)
    assert await store.get("brief") is None
    evict_all(store)
    (result,) = await store.get_many(["brief"])
    assert result.status is GetStatus.MISS
    assert store.stats().tiers["disk"].outcomes["read", "expired"] == 2
    assert await store.get_bytes("lasting") == b"2"


async def test_bare_values_cannot_expire_where_the_medium_does_not_know_how(tmp_path: Path) -> None:
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)], integrity="size") as store:
        result = await store.put("key", b"1", ttl_s=50)
        assert not result.ok
        assert result.tiers["disk"].status is PutStatus.SKIPPED
        assert result.tiers["disk"].reason == "ttl_unsupported"
        assert await store.get_bytes("key") == b"1"


async def test_bare_stores_read_what_framed_ones_wrote_but_not_the_other_way(
    tmp_path: Path,
) -> None:
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        await store.put("framed", b"framed value")
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)], integrity="size") as store:
        await store.put("bare", b"b" * 100)
        assert await store.get_bytes("framed") == b"framed value"
        evict_all(store)
        with await store.get_many(["framed"], sizes=[12]) as (result,):
            assert result.object is not None
            assert result.object.view == b"framed value"
        evict_all(store)
        out = bytearray(12)
        assert await store.get_into("framed", out) == 12
        assert out == b"framed value"
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        (result,) = await store.get_many(["bare"])
        assert result.status is GetStatus.MISS
        assert store.stats().tiers["disk"].outcomes["read", "foreign"] == 1
        assert [name.name async for name in inside(store).tiers[0].backend.list_names("bare")] == [
            "bare"
        ]


async def test_a_bare_store_strips_a_trailer_as_far_as_there_is_memory(tmp_path: Path) -> None:
    value = b"v" * (600 * KiB)
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        await store.put("framed", value)
    l1 = L1Config(capacity="1MiB", overflow=0)  # for one of them
    async with TieredStore(l1, [DiskBackend(tmp_path)], integrity="size") as store:
        (result,) = await store.get_many(["framed"])
        assert result.status is GetStatus.REJECTED
        assert isinstance(result.error, OutOfMemoryError)
        assert store.stats().l1.used_bytes == 0
        out = bytearray(len(value))
        assert await store.get_into("framed", out) == len(value)
        assert gist(out) == gist(value)
        assert store.stats().l1.used_bytes == 0


async def test_a_frame_of_another_size_keeps_no_memory_of_a_bare_store(tmp_path: Path) -> None:
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        await store.put("framed", b"v" * 100)
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)], integrity="size") as store:
        (result,) = await store.get_many(["framed"], sizes=[164])  # with its trailer
        assert (result.status, result.tier) == (GetStatus.REJECTED, "disk")
        assert isinstance(result.error, SizeMismatchError)
        assert store.stats().l1.used_bytes == 0


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[500] ^= 1
    file.write_bytes(content)


async def test_a_corrupt_copy_is_never_served_and_is_dropped(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put_many([("good", b"g" * 1000), ("bad", b"b" * 1000)])
    evict_all(store)
    file = disk.file_of("bad")
    damage(file)
    with await store.get_many(["good", "bad"]) as results:
        assert [result.status for result in results] == [GetStatus.HIT, GetStatus.CORRUPT]
        assert results[1].tier == "disk"
    await store.flush()
    assert not file.exists()
    (result,) = await store.get_many(["bad"])
    assert result.status is GetStatus.MISS


async def test_a_flush_waits_for_the_drop_of_every_corrupt_copy_that_was_read(
    store: TieredStore, disk: StoppableDisk
) -> None:
    """Often: whether a task has begun that was started before the read ended is up to the loop."""
    names = [str(number) for number in range(24)]
    await store.put_many([(name, bytes(1000)) for name in names])
    evict_all(store)
    for name in names:
        file = disk.file_of(name)
        damage(file)
        assert await store.get(name) is None
        report = await store.flush()
        assert (report.ok, file.exists()) == (True, False)


async def test_closing_waits_for_the_drop_of_a_corrupt_copy_that_was_read(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore("1MiB", [disk]) as store:
        await store.put_many([("good", bytes(1000)), ("bad", bytes(1000))])
        evict_all(store)
        damage(disk.file_of("bad"))
        with await store.get_many(["good", "bad"]) as (_, bad):
            assert bad.status is GetStatus.CORRUPT
    assert not disk.file_of("bad").exists()


async def test_a_corrupt_copy_that_cannot_be_dropped_is_found_out_again(
    anyio_backend: object,
) -> None:
    tier = FaultyBackend(MemoryBackend(), [Fault("write", "torn")])
    async with TieredStore(l1="4MiB", l2=[tier]) as store:
        await store.put("key", bytes(1000))
        evict_all(store)
        tier.inject(Fault("delete", "raise", error=TierError, times=None))
        for tried in (1, 2):
            (result,) = await store.get_many(["key"])
            assert result.status is GetStatus.CORRUPT
            await store.flush()
            assert store.stats().tiers[tier.name].outcomes["delete", "failed"] == tried


@pytest.mark.parametrize("kind", ["raise", "noop", "torn", "truncated"])
async def test_what_a_tier_calls_a_success_is_none_without_the_bytes(
    anyio_backend: object, kind: FaultKind
) -> None:
    medium = MemoryMedium()
    async with TieredStore("4MiB", [MemoryBackend(medium)]) as store:
        await store.put_many([("a", b"a" * 5000), ("b", b"b" * 5000)])
    tier = FaultyBackend(MemoryBackend(medium))
    scribbled = L1Config(capacity=4 * MiB, buffer=bytearray(b"\xaa" * 5 * MiB))
    async with TieredStore(scribbled, [tier]) as store:
        tier.inject(Fault("read", kind, name="a"))
        with await store.get_many(["a", "b"]) as (a, b):
            assert a.object is None
            assert b.object is not None
            assert bytes(b.object) == b"b" * 5000
        assert store.get_nowait("a") is None


async def test_two_values_swapped_on_disk_are_found_out(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put_many([("a", b"1" * 100), ("b", b"2" * 100)])
    evict_all(store)
    a, b = disk.file_of("a"), disk.file_of("b")
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)
    results = await store.get_many(["a", "b"])
    assert [result.status for result in results] == [GetStatus.CORRUPT, GetStatus.CORRUPT]


async def test_the_next_tier_answers_when_one_has_a_bad_copy_or_none(tmp_path: Path) -> None:
    near, far = (
        StoppableDisk(tmp_path / "near", name="near"),
        DiskBackend(tmp_path / "far", name="far"),
    )
    async with TieredStore(
        l1="8MiB", l2=[near, far], write_policy=WriteThrough(require="all")
    ) as store:
        await store.put_many([("bad", b"1" * 100), ("gone", b"2" * 100)])
        evict_all(store)
        near.file_of("bad").write_bytes(b"x" * 164)
        near.file_of("gone").unlink()
        with await store.get_many(["bad", "gone"]) as results:
            assert [result.tier for result in results] == ["far", "far"]
            assert [bytes(r.object) for r in results if r.object] == [b"1" * 100, b"2" * 100]
