"""What callers may hand in, and what is refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import (
    GetStatus,
    L1Config,
    TieredStore,
    WriteBack,
)
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import (
    ConfigError,
    KeyFormatError,
    SizeMismatchError,
    ValueFormatError,
)

pytestmark = pytest.mark.anyio


def evict_all(store: TieredStore) -> None:
    inside(store).l1.clear()


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"abc"),
        memoryview(b"abc"),
        np.arange(24, dtype=np.complex64).reshape(2, 3, 4),
        np.zeros((3, 0)),
        np.float64(1.5),
    ],
)
async def test_any_contiguous_buffer_is_a_value(store: TieredStore, value: object) -> None:
    await store.put("key", value)
    assert await store.get_bytes("key") == np.asarray(value).tobytes()


async def test_other_values_are_refused_with_the_remedy(store: TieredStore) -> None:
    with pytest.raises(TypeError, match="bytes, not str: encode it"):
        await store.put("key", "text")
    with pytest.raises(TypeError, match="buffer protocol, not int"):
        await store.put("key", 3)
    with pytest.raises(ValueFormatError, match="ascontiguousarray"):
        await store.put("key", np.zeros((4, 4))[:, ::2])
    with pytest.raises(ValueFormatError, match="ascontiguousarray"):
        await store.put("key", np.asfortranarray(np.zeros((4, 4))))
    with pytest.raises(ValueFormatError, match="give l1 or its overflow more capacity"):
        await store.put("key", np.zeros(65 * MiB, dtype=np.uint8))
    assert await store.get("key") is None


async def test_wrong_arguments_raise_and_nothing_is_done(store: TieredStore) -> None:
    with pytest.raises(TypeError, match=r"use \.hex\(\)"):
        await store.put_many([("fine", b"1"), (b"raw", b"2")])  # type: ignore[list-item]
    with pytest.raises(KeyFormatError, match="empty"):
        await store.get_many(["fine", ""])
    with pytest.raises(ConfigError, match="ttl_s=0"):
        await store.put("fine", b"1", ttl_s=0)
    with pytest.raises(ValueError, match="1 sizes for 2 keys"):
        await store.get_many(["a", "b"], sizes=[3])
    with pytest.raises(ValueFormatError, match="read-only"):
        await store.get_into("fine", b"...")
    assert not await store.exists("fine")


@pytest.mark.parametrize("size", [-1, -100, 1.5, "5", True])
async def test_a_size_that_is_none_raises_wherever_the_value_is(
    store: TieredStore, size: object
) -> None:
    await store.put("key", b"12345")
    for _ in ("in L1", "on disk"):
        with pytest.raises(ConfigError, match="size"):
            await store.get("key", size=size)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="size"):
            store.get_nowait("key", size=size)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="size"):
            await store.get_many(["key", "key"], sizes=[5, size])  # type: ignore[list-item]
        evict_all(store)
    assert store.stats().l1.used_bytes == 0


async def test_another_size_than_asked_for_is_rejected_on_disk_too(store: TieredStore) -> None:
    await store.put("key", b"12345")
    evict_all(store)
    (result,) = await store.get_many(["key"], sizes=[4])
    assert result.status is GetStatus.REJECTED
    assert isinstance(result.error, SizeMismatchError)
    assert (result.error.stored, result.error.wanted) == (5, 4)
    (result,) = await store.get_many(["key"], sizes=[0])
    assert isinstance(result.error, SizeMismatchError)
    assert (result.error.stored, result.error.wanted) == (5, 0)
    assert await store.get("key", size=4) is None
    assert await store.get_into("key", bytearray(4)) is None
    assert await store.get_into("key", bytearray(6)) is None
    assert await store.get_into("key", bytearray(5)) == 5
    await store.put("empty", b"")
    evict_all(store)
    (result,) = await store.get_many(["empty"], sizes=[4])
    assert isinstance(result.error, SizeMismatchError)
    assert (result.error.stored, result.error.wanted) == (0, 4)


async def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    disk = DiskBackend(tmp_path)
    with pytest.raises(ConfigError, match="'disk' is taken"):
        TieredStore(l1="4MiB", l2=[disk, DiskBackend(tmp_path)])
    with pytest.raises(ConfigError, match="'l1' is taken"):
        TieredStore(l1="4MiB", l2=[DiskBackend(tmp_path, name="l1")])
    with pytest.raises(ConfigError, match="l1='4G' has two readings"):
        TieredStore(l1="4G")
    with pytest.raises(ConfigError, match="integrity='sum' must be one of 'checksum', 'size'"):
        TieredStore(l1="4MiB", integrity="sum")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fail_open='no' must be true or false"):
        TieredStore(l1="4MiB", fail_open="no")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_pending"):
        TieredStore(l1="4MiB", max_pending=-1)
    with pytest.raises(TypeError, match="l2 holds a str"):
        TieredStore(l1="4MiB", l2=["disk"])  # type: ignore[list-item]
    for policy in ("all", WriteBack, ""):
        with pytest.raises(TypeError, match="write_policy is a WriteThrough"):
            TieredStore(l1="4MiB", write_policy=policy)  # type: ignore[arg-type]


async def test_more_memory_than_there_is_is_refused_in_words(disk: StoppableDisk) -> None:
    with pytest.raises(ConfigError, match="capacity=4398046511104: the system has not so much"):
        await TieredStore(
            l1=L1Config(capacity="4TiB", alignment_bytes=64 * KiB), l2=[disk]
        ).__aenter__()
