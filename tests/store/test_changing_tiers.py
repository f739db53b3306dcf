"""Tiers that come and go while the store is open."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import GetStatus, PutStatus, TieredStore, WriteThrough
from tieredkv.backends import DiskBackend
from tieredkv.config import MiB
from tieredkv.errors import ConfigError, StoreClosedError
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers.pacing import Pacer

pytestmark = pytest.mark.anyio


async def test_a_tier_that_is_added_is_used(store: TieredStore, tmp_path: Path) -> None:
    await store.add_backend(DiskBackend(tmp_path / "more", name="more"))
    put = await store.put("a", b"value")
    await store.flush()
    assert list(put.tiers) == ["l1", "disk", "more"]
    await store.clear(tiers=["l1", "disk"])
    assert await store.get_bytes("a") == b"value"
    assert await store.clear(tiers=["more"]) == {"more": 1}


async def test_its_place_is_that_in_which_it_is_asked(store: TieredStore, tmp_path: Path) -> None:
    await store.add_backend(DiskBackend(tmp_path / "first", name="first"), place=0)
    put = await store.put("a", b"value")
    await store.flush()
    assert list(put.tiers) == ["l1", "first", "disk"]
    await store.clear()
    info = await store.stat("a")
    assert info is not None
    assert info.tier == "first"


async def test_a_store_without_tiers_gets_one(tmp_path: Path) -> None:
    async with TieredStore(4 * MiB) as store:
        await store.put("a", b"before")
        await store.add_backend(DiskBackend(tmp_path))
        await store.put("b", b"after")
        await store.clear()
        assert [await store.get_bytes(key) for key in "ab"] == [None, b"after"]


@pytest.mark.parametrize("there", [[], ["first"]])
async def test_a_put_that_was_under_way_wins_over_an_earlier_one_there_too(
    there: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pause(pacer: Pacer) -> None:
        pacer.spent = 0
        copying.set()
        await go_on.wait()

    copying, go_on, new = anyio.Event(), anyio.Event(), bytes(6 * MiB)
    monkeypatch.setattr(Pacer, "pause", pause)
    async with TieredStore("64MiB", [MemoryBackend(name=name) for name in there]) as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.put, "key", new)
            await copying.wait()
            await store.add_backend(MemoryBackend(name="added"))
            await store.put("key", b"earlier")
            go_on.set()
        await store.flush()
        await store.clear(tiers=["l1", *there])
        info = await store.stat("key")
        assert info is not None
        assert info.nbytes == len(new)


async def test_what_cannot_be_added_is_refused_and_changes_nothing(
    store: TieredStore, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="'disk' is taken"):
        await store.add_backend(DiskBackend(tmp_path / "again"))
    with pytest.raises(TypeError, match="not a Backend"):
        await store.add_backend("disk")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="place=2"):
        await store.add_backend(MemoryBackend(), place=2)
    assert list((await store.put("a", b"value")).tiers) == ["l1", "disk"]


async def test_one_that_is_unreachable_is_used_when_it_can_be(store: TieredStore) -> None:
    tier = FaultyBackend(MemoryBackend(), [Fault("open", "raise")])
    await store.add_backend(tier)
    with anyio.fail_after(30):
        while True:
            put = await store.put("a", b"value")
            await store.flush()
            if put.tiers[tier.name].status is not PutStatus.SKIPPED:
                break
            await anyio.sleep(0.05)


async def test_a_tier_that_is_removed_is_closed_and_keeps_its_values(
    disk: StoppableDisk, store: TieredStore
) -> None:
    await store.put("a", b"value")
    await store.remove_backend("disk")
    with pytest.raises(StoreClosedError):
        await disk.stat_many(["a"])
    assert list((await store.put("b", b"value")).tiers) == ["l1"]
    await store.clear()
    assert await store.get_bytes("a") is None
    await store.add_backend(DiskBackend(disk.path))
    assert await store.get_bytes("a") == b"value"


async def test_its_writes_end_first(disk: StoppableDisk, store: TieredStore) -> None:
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "a", b"value")
            await disk.entered()
            tasks.start_soon(store.remove_backend, "disk")
            await anyio.wait_all_tasks_blocked()
            put = await store.put("b", b"value")
            assert str(put.tiers["disk"]) == "skipped (draining)"
    await store.add_backend(DiskBackend(disk.path))
    await store.clear()
    assert [await store.get_bytes(key) for key in "ab"] == [b"value", None]


async def test_one_that_does_not_end_in_time_stays_and_can_be_resumed(
    disk: StoppableDisk, store: TieredStore
) -> None:
    await store.put("a", b"old")
    await disk.entered()
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "b", b"value")
            await disk.entered()
            with pytest.raises(TimeoutError, match="1 writes to do"):
                await store.remove_backend("disk", timeout_s=0.01)
            await store.put("a", b"new")
            assert (await store.status())["tiers"]["disk"]["is_draining"]
            store.resume_backend("disk")
    await store.clear()
    assert await store.get_bytes("a") is None  # it missed the last put
    assert await store.get_bytes("b") == b"value"
    assert (await store.put("a", b"newest")).ok


async def test_it_is_not_read_while_it_drains(disk: StoppableDisk, store: TieredStore) -> None:
    await store.put("a", b"value")
    await disk.entered()
    await store.clear()
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "b", b"value")
            await disk.entered()
            with pytest.raises(TimeoutError):
                await store.remove_backend("disk", timeout_s=0.01)
            assert await store.get_bytes("a") is None
    await store.remove_backend("disk")


async def test_reads_that_wait_for_it_as_it_is_removed_go_on_to_the_next(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path / "disk", num_workers=1)
    below = DiskBackend(tmp_path / "below", name="below")
    found: list[tuple[str | None, GetStatus]] = []
    policy = WriteThrough(require="all")
    async with TieredStore(4 * MiB, [disk, below], write_policy=policy) as store:
        await store.put_many([("a", b"value"), ("b", b"value")])
        await disk.entered(2)
        await store.clear()

        async def get(key: str) -> None:
            with await store.get_many([key], sizes=[5]) as results:
                found.extend((result.tier, result.status) for result in results)

        async with anyio.create_task_group() as tasks:
            with disk.stopped():
                tasks.start_soon(get, "a")
                await disk.entered()
                tasks.start_soon(get, "b")
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(store.remove_backend, "disk")
                await anyio.wait_all_tasks_blocked()
    assert sorted(found) == [("below", GetStatus.HIT), ("disk", GetStatus.HIT)]


async def test_there_must_be_such_a_tier(store: TieredStore) -> None:
    with pytest.raises(ConfigError, match="did you mean 'disk'"):
        await store.remove_backend("disc")
    with pytest.raises(ConfigError, match="one of 'disk'"):
        store.resume_backend("l2")


async def test_a_tier_that_drains_can_still_be_listed_and_cleared(
    disk: StoppableDisk, store: TieredStore
) -> None:
    await store.put("a", b"value")
    await disk.entered()
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "b", b"value")
            await disk.entered()
            with pytest.raises(TimeoutError):
                await store.remove_backend("disk", timeout_s=0.01)
            assert [key async for key in store.keys("disk")] == ["a"]
    assert await store.clear(tiers=["disk"]) == {"disk": 2}


async def test_of_two_that_are_added_under_one_name_one_is_refused(store: TieredStore) -> None:
    refused: list[ConfigError] = []

    async def add() -> None:
        try:
            await store.add_backend(MemoryBackend())
        except ConfigError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add)
        tasks.start_soon(add)
    assert "'memory' is taken" in str(refused[0])
    assert len(refused) == 1
    assert list((await store.put("a", b"value")).tiers) == ["l1", "disk", "memory"]


async def test_one_that_opens_while_the_store_closes_is_closed_again() -> None:
    class Slow(MemoryBackend):
        async def open(self) -> None:
            opening.set()
            await go_on.wait()
            await super().open()

    opening, go_on, late = anyio.Event(), anyio.Event(), Slow()
    async with TieredStore(4 * MiB) as store, anyio.create_task_group() as tasks:

        async def add() -> None:
            with pytest.raises(StoreClosedError):
                await store.add_backend(late)

        tasks.start_soon(add)
        await opening.wait()
        await store.aclose()
        go_on.set()
    with pytest.raises(StoreClosedError):
        await late.stat_many(["a"])
