"""Loads in flight: shared, outlived, overtaken; and memory that a worker still fills."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside, users
from tests.store.stoppable import StoppableDisk
from tieredkv import GetStatus, L1Config, TieredStore
from tieredkv.backends import DiskBackend, ReadRequest
from tieredkv.config import KiB, MiB
from tieredkv.results import ReadOutcome, StatOutcome
from tieredkv.testing.content import gist
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio


async def put_on_disk(store: TieredStore, **values: bytes) -> None:
    await store.put_many(values.items())
    inside(store).l1.clear()


async def test_one_load_serves_all_who_ask(store: TieredStore, disk: StoppableDisk) -> None:
    await put_on_disk(store, key=b"bytes")
    got: list[bytes | None] = []

    async def ask() -> None:
        got.append(await store.get_bytes("key"))

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(ask)
            await disk.entered(2)  # the write before, and one read
            assert store.stats().loads_in_flight == 1
            disk.let_go()
    assert got == [b"bytes"] * 64
    assert disk.reads == ["key"]
    assert store.stats().l1.leases == 0
    assert users(store, "key") == 1


async def test_a_leader_that_is_cancelled_hands_over(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, key=b"bytes")
    got: list[bytes | None] = []
    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(0.05) as leader:
                await store.get("key")
            assert leader.cancelled_caught

            async def follow() -> None:
                got.append(await store.get_bytes("key"))

            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
    assert got == [b"bytes"]
    assert disk.reads == ["key"]


async def test_a_load_that_nobody_waits_for_any_more_leaks_nothing(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, **{f"key-{n}": bytes(10 * KiB) for n in range(20)})
    with disk.stopped():
        with anyio.move_on_after(0.05) as scope:
            await store.get_many([f"key-{n}" for n in range(20)])
        assert scope.cancelled_caught
    with anyio.fail_after(30):
        while store.stats().loads_in_flight:
            await anyio.sleep(0.001)
    assert store.stats().l1.leases == 0
    assert all(users(store, f"key-{n}") == 1 for n in range(20))
    inside(store).l1.clear()
    assert store.stats().l1.used_bytes == 0


async def test_a_cancelled_batch_gives_its_l1_leases_back(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, cold=b"bytes")
    await store.put("hot", b"bytes")
    with disk.stopped(), anyio.move_on_after(0.05):
        await store.get_many(["hot", "cold"])
    assert store.stats().l1.leases == 0


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_a_load_that_a_change_overtook_never_enters_l1(
    store: TieredStore, disk: StoppableDisk, change: str
) -> None:
    await put_on_disk(store, key=b"old")
    got: list[bytes | None] = []

    async def ask() -> None:
        got.append(await store.get_bytes("key"))

    async def do_change() -> None:
        if change == "put":
            await store.put("key", b"new")
        else:
            await store.delete("key")

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await disk.entered(2)
            tasks.start_soon(do_change)
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
    assert got[0] in {b"old", b"new", None}
    expected = b"new" if change == "put" else None
    assert await store.get_bytes("key") == expected
    inside(store).l1.clear()
    assert await store.get_bytes("key") == expected


async def test_nor_does_one_that_another_load_of_its_key_has_replaced(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, key=b"old")

    async def ask(size: int) -> None:
        (await store.get_many(["key"], sizes=[size])).release()

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 3)
            await disk.entered(2)
            tasks.start_soon(ask, 5)  # another size: this one is joined from now on
            await disk.entered()
            tasks.start_soon(store.put, "key", b"new")
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
    assert await store.get_bytes("key") == b"new"


async def test_a_miss_names_no_tier_and_no_error(store: TieredStore) -> None:
    (result,) = await store.get_many(["nothing"])
    assert (result.status, result.tier, result.error) == (GetStatus.MISS, None, None)


async def test_a_failure_reaches_its_waiters_and_is_not_cached(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, key=b"bytes")
    with disk.failing(OSError(5, "Input/output error")):
        (result,) = await store.get_many(["key"])
        assert result.status is GetStatus.UNKNOWN
        assert "Input/output error" in str(result.error)
        assert result.tier == "disk"
    assert await store.get_bytes("key") == b"bytes"


async def test_a_tier_past_its_deadline_is_skipped_and_its_memory_waits_for_the_worker(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, key=b"k" * (100 * KiB))
    disk.deadline_s = 0.05
    with disk.stopped():
        (result,) = await store.get_many(["key"], sizes=[100 * KiB])
        assert result.status is GetStatus.UNKNOWN
        assert "no answer within 0.05 s" in str(result.error)
        # The worker will still write into that block: nobody gets it before.
        assert store.stats().blocks_held_by_views == 1
        held = store.stats().l1.used_bytes
        await store.put_many([(f"other-{n}", bytes([n]) * (100 * KiB)) for n in range(30)])
        assert store.stats().l1.used_bytes > held
    with anyio.fail_after(30):
        while store.stats().blocks_held_by_views:
            await anyio.sleep(0.001)
    with await store.get_many([f"other-{n}" for n in range(30)]) as results:
        for n, hit in enumerate(results):
            assert hit.object is None or bytes(hit.object) == bytes([n]) * (100 * KiB)


async def test_reading_into_the_callers_memory_is_cancelled_only_when_no_worker_touches_it(
    store: TieredStore, disk: StoppableDisk
) -> None:
    value = b"v" * (1 * MiB)
    await put_on_disk(store, key=value)
    out = bytearray(len(value))
    ended: list[str] = []

    async def read_into() -> None:
        with anyio.move_on_after(0.05) as scope:
            await store.get_into("key", out)
        ended.append("cancelled" if scope.cancel_called else "in time")

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_into)
            await disk.entered(2)
            await anyio.sleep(0.1)  # past the deadline of the caller, whatever the machine's load
            assert not ended
            disk.let_go()
    assert ended == ["cancelled"]
    assert gist(out) == gist(value)


async def test_a_value_that_changes_size_between_look_up_and_read_is_read_anew(
    store: TieredStore, disk: StoppableDisk, tmp_path: object
) -> None:
    await put_on_disk(store, key=b"four")
    other = StoppableDisk(disk.path)
    async with TieredStore(l1="4MiB", l2=[other]) as elsewhere:
        with disk.stopped():
            async with anyio.create_task_group() as tasks:
                got: list[bytes | None] = []

                async def ask() -> None:
                    got.append(await store.get_bytes("key"))

                tasks.start_soon(ask)
                await disk.entered(2)
                await elsewhere.put("key", b"longer")
                disk.let_go()
    assert got == [b"longer"]
    assert disk.reads == ["key", "key"]


async def test_a_look_up_for_another_size_does_not_spoil_one_without(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await put_on_disk(store, key=b"bytes")
    statuses: dict[int | None, GetStatus] = {}

    async def ask(size: int | None) -> None:
        with await store.get_many(["key"], sizes=[size]) as (result,):
            statuses[size] = result.status

    with disk.stopped():
        async with anyio.create_task_group() as tasks:
            for size in (3, None, 5):
                tasks.start_soon(ask, size)
            await anyio.wait_all_tasks_blocked()
            disk.let_go()
    assert statuses == {3: GetStatus.REJECTED, None: GetStatus.HIT, 5: GetStatus.HIT}


async def test_reads_in_flight_hold_an_eighth_of_l1_or_one_value(anyio_backend: object) -> None:
    class Counting(MemoryBackend):
        async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
            calls.append([request.name for request in requests])
            return await super().read_many(requests)

    calls: list[list[str]] = []
    sixteenth = bytes(256 * KiB - 64)  # a block of that, with the trailer
    values = dict.fromkeys("abcd", sixteenth) | {"large": bytes(1 * MiB), "small": b"value"}
    async with TieredStore(4 * MiB, [Counting()]) as store:
        await put_on_disk(store, **values)
        with await store.get_many(values) as results:
            assert all(result.status is GetStatus.HIT for result in results)
    assert calls == [["a", "b"], ["c", "d"], ["large"], ["small"]]


async def test_a_value_whose_size_changes_with_each_read_is_a_miss(anyio_backend: object) -> None:
    class Restless(MemoryBackend):
        def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
            reads.append(request.nbytes)
            assert len(reads) < 10
            client.put(request.name, bytes(request.nbytes + 1))
            return super()._read(client, request)

    reads: list[int] = []
    async with TieredStore(4 * MiB, [Restless()]) as store:
        await put_on_disk(store, key=b"value")
        with await store.get_many(["key"]) as (result,):
            assert (result.status, result.error) == (GetStatus.MISS, None)
        assert reads == [5 + 64, 6 + 64]


async def test_a_value_that_shrinks_to_less_than_a_frame_is_a_miss(anyio_backend: object) -> None:
    class Behind(MemoryBackend):
        def _stat(self, client: MemoryMedium, name: str) -> StatOutcome:
            outcome = super()._stat(client, name)
            client.put(name, b"short")
            return outcome

    async with TieredStore(4 * MiB, [Behind()]) as store:
        await put_on_disk(store, key=b"value")
        with await store.get_many(["key"]) as (result,):
            assert (result.status, result.error) == (GetStatus.MISS, None)


async def test_reading_into_the_callers_memory_needs_none_of_l1(tmp_path: Path) -> None:
    l1 = L1Config(capacity="1MiB", overflow=0)
    async with TieredStore(l1, [DiskBackend(tmp_path)]) as store:
        await put_on_disk(store, key=b"v" * (600 * KiB))
        await store.put("held", bytes(600 * KiB))
        out = bytearray(600 * KiB)
        with await store.get("held"):  # type: ignore[union-attr]
            assert await store.get_into("key", out) == len(out)
        assert out == b"v" * len(out)
