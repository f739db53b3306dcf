"""What nobody waits for yet lets others pass."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import TieredStore
from tieredkv.config import MiB
from tieredkv.tiers.inflight import InFlight

pytestmark = pytest.mark.anyio


async def test_a_get_goes_before_the_rest_of_a_prefetch(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path / "disk", num_workers=1)
    ahead = ["first", "second", "third"]
    async with TieredStore(l1=32 * MiB, l2=[disk]) as store:
        for name in (*ahead, "now"):
            (await store.put(name, bytes(1 * MiB))).raise_for_status()
        await store.clear()
        await disk.entered(4)  # the writes
        async with anyio.create_task_group() as tasks:
            with disk.stopped():
                tasks.start_soon(store.prefetch, ahead)
                await disk.entered()
                tasks.start_soon(store.get_into, "now", bytearray(1 * MiB))
                await anyio.wait_all_tasks_blocked()
    assert disk.reads == ["first", "now", "second", "third"]


@pytest.mark.usefixtures("anyio_backend")
async def test_a_load_is_urgent_as_soon_as_a_reader_joins_it() -> None:
    inflight = InFlight()
    ahead, _ = inflight.join("name", None, urgent=False)
    assert not ahead.urgent
    joined, is_new = inflight.join("name", None)
    assert not is_new
    assert joined.urgent
