"""Opening, closing, and on which event loop."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import DeleteResult, DeleteStatus, GetStatus, PutResult, PutStatus, TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.errors import (
    StoreClosedError,
    WrongLoopError,
)
from tieredkv.pool.lease import GetResult
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


async def test_a_closed_store_says_so(disk: StoppableDisk, tmp_path: Path) -> None:
    unopened = TieredStore(l1="4MiB")
    with pytest.raises(StoreClosedError, match="async with"):
        await unopened.get("key")
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        await store.put("key", b"bytes")
        lease = await store.get("key")
        assert lease is not None
    assert bytes(lease) == b"bytes"
    lease.release()
    assert (await store.aclose()).ok
    for call in (store.get("key"), store.put("key", b""), store.delete("key"), store.exists("key")):
        with pytest.raises(StoreClosedError):
            await call
    with pytest.raises(StoreClosedError):
        store.stats()
    with pytest.raises(StoreClosedError, match="make a new one"):
        await store.__aenter__()


async def test_a_backend_that_cannot_open_stops_the_store_and_closes_the_others(
    disk: StoppableDisk, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(Exception, match=r"Not a directory|File exists") as caught:
        async with TieredStore(l1="4MiB", l2=[disk, DiskBackend(file, name="broken")]):
            raise AssertionError("opened")
    assert "broken: open" in str(caught.value)
    with pytest.raises(StoreClosedError):
        await disk.stat_many(["key"])


def test_another_event_loop_is_refused() -> None:
    stores: list[TieredStore] = []

    async def first() -> None:
        stores.append(await TieredStore(l1="4MiB").__aenter__())
        await stores[0].put("key", b"bytes")

    anyio.run(first)
    refused: list[bool] = []

    def elsewhere() -> None:
        async def second() -> None:
            with pytest.raises(WrongLoopError):
                await stores[0].get("key")
            refused.append(True)

        anyio.run(second)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert refused


async def test_what_waits_for_a_worker_as_the_store_closes_has_an_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = StoppableDisk(tmp_path, num_workers=1)
    gets: list[GetResult] = []
    puts: list[PutResult] = []
    deletes: list[DeleteResult] = []
    async with TieredStore("4MiB", [disk]) as store:
        await store.put("a", b"value")
        await disk.entered()
        await store.clear()

        async def get() -> None:
            gets.extend(await store.get_many(["a"], sizes=[5]))

        async def put() -> None:
            puts.append(await store.put("b", b"value"))

        async def delete() -> None:
            deletes.append(await store.delete("c"))

        async with anyio.create_task_group() as tasks:
            with disk.stopped():
                tasks.start_soon(store.put, "busy", b"value")
                await disk.entered()
                for call in (get, put, delete):
                    tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                await store.aclose(timeout_s=0.01)
    assert gets[0].status is GetStatus.UNKNOWN
    assert puts[0].tiers["disk"].status is PutStatus.UNKNOWN
    assert deletes[0].status is DeleteStatus.UNKNOWN
    errors = [gets[0].error, puts[0].tiers["disk"].error, deletes[0].tiers["disk"].error]
    assert all("'disk' was closed" in str(error) for error in errors)
    assert "a defect" not in caplog.text


def test_on_a_later_loop_of_the_thread_a_tier_is_unknown() -> None:
    store = TieredStore("4MiB", [MemoryBackend()])

    async def on_the_first() -> None:
        await store.__aenter__()

    async def on_the_second() -> GetStatus:
        with await store.get_many(["key"], sizes=[5]) as results:
            return results[0].status

    anyio.run(on_the_first)
    assert anyio.run(on_the_second) is GetStatus.UNKNOWN
