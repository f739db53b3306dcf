"""Opening, closing, and on which event loop."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import (
    TieredStore,
)
from tieredkv.backends import DiskBackend
from tieredkv.errors import (
    StoreClosedError,
    WrongLoopError,
)

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
