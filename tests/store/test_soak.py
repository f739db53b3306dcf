"""Everything at once, for long: only in ``nox -s soak``."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.store.inside import inside
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

OPERATIONS = 20_000
TASKS = 64
KEYS = 200


def value_of(key: int) -> bytes:
    """Content-addressed: a key has one value for ever."""
    return random.Random(key).randbytes(4 * KiB + 97 * key)


async def test_no_wrong_byte_and_no_leak_under_random_cancellation(tmp_path: Path) -> None:
    threads = threading.active_count()
    values = [value_of(key) for key in range(KEYS)]
    chance = random.Random(1)
    done = hits = 0
    async with TieredStore(l1="1MiB", l2=[DiskBackend(tmp_path, capacity="2MiB")]) as store:

        async def one() -> None:
            nonlocal hits
            wanted = chance.sample(range(KEYS), 8)
            match chance.randrange(5):
                case 0:
                    await store.put_many([(f"key-{key}", values[key]) for key in wanted])
                case 1:
                    out = bytearray(len(values[wanted[0]]))
                    if await store.get_into(f"key-{wanted[0]}", out) is not None:
                        assert out == values[wanted[0]]
                case 2:
                    await store.delete(f"key-{wanted[0]}")
                case _:
                    with await store.get_many([f"key-{key}" for key in wanted]) as results:
                        for key, result in zip(wanted, results, strict=True):
                            if result.object is not None:
                                view = result.object.view
                                await anyio.lowlevel.checkpoint()
                                assert view == values[key]
                                hits += 1

        async def worker() -> None:
            nonlocal done
            while done < OPERATIONS:
                done += 1
                with anyio.move_on_after(chance.choice([0.0005, 0.01, 10])):
                    await one()

        async with anyio.create_task_group() as tasks:
            for _ in range(TASKS):
                tasks.start_soon(worker)
        assert (await store.flush()).ok
        with anyio.fail_after(30):
            while store.stats().loads_in_flight or store.stats().blocks_held_by_views:
                await anyio.sleep(0.01)
        stats = store.stats()
        assert (stats.l1.leases, stats.pending_bytes, stats.l1.overflow_used_bytes) == (0, 0, 0)
        inside(store).l1.clear()
        assert store.stats().l1.used_bytes == 0
        logging.getLogger(__name__).info("%d operations, %d hits verified", done, hits)
        assert hits > OPERATIONS // 10
    assert threading.active_count() <= threads + 8  # anyio keeps idle threads for a while
