"""While a put or delete is under way, nothing is read that is older than what it replaces."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from tieredkv import PutStatus, TieredStore, WriteThrough
from tieredkv.config import KiB
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


async def test_a_delete_that_waits_for_a_write_shows_no_value_from_before(
    anyio_backend: object,
) -> None:
    tier = FaultyBackend(MemoryBackend())
    async with (
        TieredStore("1MiB", [tier], write_policy=WriteThrough(require="none")) as store,
        anyio.create_task_group() as tasks,
    ):
        await store.put("key", b"old")
        await store.flush()
        tier.inject(Fault("write", "late", "key"))
        await store.put("key", b"new")
        await tier.until_held()
        tasks.start_soon(store.delete, "key")
        await anyio.wait_all_tasks_blocked()
        assert await store.get_bytes("key") is None
        await tier.land()


async def test_a_put_that_waits_for_room_is_read_though_l1_has_dropped_it(
    anyio_backend: object,
) -> None:
    tier = FaultyBackend(MemoryBackend())
    async with (
        TieredStore("1MiB", [tier], max_pending=8 * KiB) as store,
        anyio.create_task_group() as tasks,
    ):
        await store.put("key", b"old")
        tier.inject(Fault("write", "late", "other"))
        tasks.start_soon(store.put, "other", bytes(8 * KiB))
        await tier.until_held()
        tasks.start_soon(store.put, "key", b"new")
        await anyio.wait_all_tasks_blocked()
        await store.clear()
        assert await store.get_bytes("key") == b"new"
        await tier.land()
        report = await store.flush()
        assert (await store.put("key", b"newest")).tiers["memory"].status is PutStatus.STORED
        assert report.ok


async def test_a_put_that_is_given_up_uncovers_no_earlier_one_that_is_still_pending(
    anyio_backend: object,
) -> None:
    tier = FaultyBackend(MemoryBackend())
    async with (
        TieredStore("1MiB", [tier], max_pending=8 * KiB) as store,
        anyio.create_task_group() as tasks,
    ):
        tier.inject(Fault("write", "late", "key"))
        tasks.start_soon(store.put, "key", b"old")
        await tier.until_held()
        given_up = anyio.CancelScope()

        async def put() -> None:
            with given_up:
                await store.put("key", bytes(8 * KiB))

        tasks.start_soon(put)
        await anyio.wait_all_tasks_blocked()
        assert await store.get_bytes("key") == bytes(8 * KiB)
        given_up.cancel()
        await anyio.wait_all_tasks_blocked()
        await store.clear()
        assert await store.get_bytes("key") is None
        await tier.land()
        assert await store.get_bytes("key") is None


async def test_a_put_right_behind_a_delete_stays(anyio_backend: object) -> None:
    tier = MemoryBackend()
    async with TieredStore("1MiB", [tier]) as store:
        await store.put("key", b"old")
        for _ in range(10):  # of tasks that begin together trio picks any first
            async with anyio.create_task_group() as tasks:

                async def begin(tasks: TaskGroup = tasks) -> None:
                    tasks.start_soon(store.put, "key", b"new")
                    await store.delete("key")

                tasks.start_soon(begin)
            await store.flush()
            await store.clear()
            assert await store.get_bytes("key") == b"new"
