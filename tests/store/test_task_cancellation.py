"""Cancellation by asyncio itself (`asyncio.timeout`, `Task.cancel`): no cancel scope stops it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import TieredStore
from tieredkv.config import MiB
from tieredkv.testing.content import content, gist

pytestmark = pytest.mark.anyio

VALUE = content("key", 50_000)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_buffer_that_came_back_is_not_touched_again(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put("key", VALUE)
    await disk.entered()
    inside(store).l1.clear()
    out = bytearray(len(VALUE))
    with disk.stopped():
        call = asyncio.create_task(store.get_into("key", out))
        await disk.entered()
        for _ in range(3):  # who insists waits all the same
            call.cancel()
            await others_run()
        assert not call.done()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not disk._workers.num_running
    assert store.stats().loads_in_flight == 0


async def test_a_time_out_is_told_when_the_buffer_is_free(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put("key", VALUE)
    inside(store).l1.clear()

    async def read() -> None:
        async with asyncio.timeout(0):
            await store.get_into("key", bytearray(len(VALUE)))

    with pytest.raises(TimeoutError):
        await read()
    assert gist(await store.get_bytes("key") or b"") == gist(VALUE)


async def test_closing_is_not_cut_short(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path / "disk")
    store = TieredStore(l1=4 * MiB, l2=[disk])
    await store.__aenter__()
    with disk.stopped():
        put = asyncio.create_task(store.put("key", VALUE))
        await disk.entered()
        closing = asyncio.create_task(store.aclose())
        for _ in range(3):
            await others_run()
            closing.cancel()
        await others_run()
        assert not closing.done()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (await put).ok
    assert disk._workers.num_clients == 0
    async with TieredStore(l1=4 * MiB, l2=[disk]) as again:
        assert gist(await again.get_bytes("key") or b"") == gist(VALUE)
