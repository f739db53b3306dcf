"""Links that somebody planted where a value lies: what they lead to is neither read nor touched."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.inside import inside
from tieredkv import DeleteStatus, GetStatus, TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.backends.base import ReadRequest
from tieredkv.backends.disk.names import path_of
from tieredkv.config import MiB
from tieredkv.frames import TRAILER_BYTES, SizeCheck

pytestmark = pytest.mark.anyio

VALUE = b"value"
SECRET = b"s" * (len(VALUE) + TRAILER_BYTES)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    return file


@pytest.fixture
async def store(tmp_path: Path, secret: Path, anyio_backend: object) -> AsyncIterator[TieredStore]:
    """L1 over a disk where the file of "key" is a link."""
    root = tmp_path / "root"
    async with TieredStore(4 * MiB, [DiskBackend(root)], integrity="size") as opened:
        await opened.put("key", VALUE)
        inside(opened).l1.clear()
        file = root / path_of("key")
        file.unlink()
        file.symlink_to(secret)
        yield opened
    assert secret.read_bytes() == SECRET


async def test_it_is_not_read(store: TieredStore) -> None:
    for sizes in (None, [len(SECRET)]):
        with await store.get_many(["key"], sizes=sizes) as results:
            assert results[0].status is not GetStatus.HIT
    assert await store.get_into("key", bytearray(len(SECRET))) is None
    assert not await store.exists("key")


async def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with TieredStore(4 * MiB, [DiskBackend(root)]) as store:
        await store.put("key", VALUE)
        inside(store).l1.clear()
        file = root / path_of("key")
        file.unlink()
        os.mkfifo(file)
        with await store.get_many(["key"], sizes=[len(VALUE)]) as results:
            assert results[0].status is not GetStatus.HIT
        assert not await store.exists("key")


async def test_a_put_replaces_the_link(store: TieredStore) -> None:
    assert (await store.put("key", VALUE)).ok
    inside(store).l1.clear()
    assert await store.get_bytes("key") == VALUE


async def test_a_delete_removes_the_link(store: TieredStore) -> None:
    deleted = await store.delete("key")
    assert deleted.status in (DeleteStatus.DELETED, DeleteStatus.ABSENT)
    await store.clear(tiers=["disk"])
    assert [key async for key in store.keys("disk")] == []


async def test_a_read_of_one_gives_its_memory_back_at_once(tmp_path: Path) -> None:
    """Without the garbage collector: what it has to find may stay for long."""
    backend = DiskBackend(tmp_path / "root")
    await backend.open()
    file = tmp_path / "root" / path_of("key")
    file.parent.mkdir(parents=True)
    file.symlink_to(tmp_path / "secret")
    memory = bytearray(8)
    gc.disable()
    try:
        check = SizeCheck("key", memoryview(memory))
        (outcome,) = await backend.read_many([ReadRequest("key", (memoryview(memory),), check)])
        del check
        memory.append(0)  # raises while there is a view of it
    finally:
        gc.enable()
    assert outcome.status is GetStatus.MISS
    await backend.aclose()
