"""The facade over L1 and one tier: what callers give and what they get."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import (
    GetStatus,
    ObjectKey,
    PutStatus,
    TieredStore,
    ValueInfo,
)
from tieredkv.backends import DiskBackend
from tieredkv.config import MiB
from tieredkv.errors import (
    ConfigError,
    LeaseReleasedError,
    PutFailedError,
    SizeMismatchError,
    TierUnavailableError,
)
from tieredkv.observe import CacheEvent
from tieredkv.testing.content import gist

pytestmark = pytest.mark.anyio

KEY = ObjectKey("llama", 0xFF, b"\x00\x01\x02\x03")


def evict_all(store: TieredStore) -> None:
    inside(store).l1.clear()


async def test_a_value_comes_back_from_l1_and_after_eviction_from_disk(store: TieredStore) -> None:
    value = b"chunk" * 1000
    result = await store.put(KEY, value)
    assert result.ok
    assert {tier: outcome.status for tier, outcome in result.tiers.items()} == {
        "l1": PutStatus.STORED,
        "disk": PutStatus.STORED,
    }
    for tier in ("l1", "disk", "l1"):
        lease = await store.get(KEY)
        assert lease is not None
        with lease:
            assert (lease.tier, lease.key, len(lease), bytes(lease)) == (tier, KEY, 5000, value)
            assert lease.view.readonly
            assert lease.view.format == "B"
        if tier == "l1":
            evict_all(store)


async def test_values_survive_the_store(tmp_path: Path) -> None:
    values = {f"key-{size}": bytes(range(256)) * size for size in (0, 1, 40, 4000)}
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        await store.put_many(values.items())
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        assert {key: await store.get_bytes(key) for key in values} == values


@pytest.mark.parametrize("integrity", ["checksum", "size"])
async def test_every_path_of_reading_gives_the_same_bytes(tmp_path: Path, integrity: str) -> None:
    value = np.random.default_rng(1).bytes(3 * MiB + 17)
    async with TieredStore(l1="16MiB", l2=[DiskBackend(tmp_path)], integrity=integrity) as store:  # type: ignore[arg-type]
        await store.put("key", value)
        for from_disk in (False, True):
            if from_disk:
                evict_all(store)
            out = bytearray(len(value))
            assert await store.get_into("key", out) == len(value)
            assert gist(out) == gist(value)
            if from_disk:
                assert not len(inside(store).l1)  # a read into the caller's memory does not fill L1
            assert await store.get_bytes("key") == value
            if from_disk:
                evict_all(store)
            with await store.get_many(["key"], sizes=[len(value)]) as (result,):
                assert result.object is not None
                assert result.object.view == value


async def test_a_put_is_a_copy(store: TieredStore) -> None:
    value = bytearray(b"before")
    await store.put("key", value)
    value[:] = b"after!"
    assert await store.get_bytes("key") == b"before"
    evict_all(store)
    assert await store.get_bytes("key") == b"before"


async def test_the_last_put_wins_also_within_a_batch(store: TieredStore) -> None:
    results = await store.put_many([("key", b"first"), ("key", b"second"), ("key", b"third")])
    assert [result.tiers["l1"].status for result in results] == [PutStatus.STORED] * 3
    assert results[2].ok
    assert await store.get_bytes("key") == b"third"
    await store.flush()
    evict_all(store)
    assert await store.get_bytes("key") == b"third"


async def test_salts_are_apart(store: TieredStore) -> None:
    salted = ObjectKey("llama", 0xFF, b"\x00\x01\x02\x03", cache_salt="user-42")
    await store.put_many([(KEY, b"nobody's"), (salted, b"user 42's")])
    evict_all(store)
    assert await store.get_bytes(KEY) == b"nobody's"
    assert await store.get_bytes(salted) == b"user 42's"


async def test_a_batch_answers_each_key_in_order(store: TieredStore) -> None:
    await store.put_many([("a", b"1"), ("b", b"22")])
    with await store.get_many(["b", "missing", "a", "b"], sizes=[None, None, 7, 2]) as results:
        assert [result.status for result in results] == [
            GetStatus.HIT,
            GetStatus.MISS,
            GetStatus.REJECTED,
            GetStatus.HIT,
        ]
        assert [result.key for result in results] == ["b", "missing", "a", "b"]
        assert isinstance(results[2].error, SizeMismatchError)
        assert (results[2].error.stored, results[2].error.wanted) == (1, 7)
        leases = [result.object for result in results if result.object]
    assert store.stats().l1.leases == 0
    with pytest.raises(LeaseReleasedError):
        leases[0].view  # noqa: B018 - the property raises
    assert await store.get_many([]) is not None


async def test_delete_acts_in_every_tier_and_readers_keep_their_bytes(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    lease = await store.get("key")
    assert lease is not None
    result = await store.delete("key")
    assert result.status == "deleted"
    assert {tier: str(outcome.status) for tier, outcome in result.tiers.items()} == {
        "l1": "deleted",
        "disk": "deleted",
    }
    assert bytes(lease) == b"bytes"
    lease.release()
    assert not await store.exists("key")
    assert await store.get("key") is None
    assert (await store.delete("key")).status == "absent"


async def test_events_are_told_and_a_listener_that_raises_harms_nobody(
    store: TieredStore, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[CacheEvent] = []

    def broken(event: CacheEvent) -> None:
        raise RuntimeError("listener")

    store.subscribe(broken)
    handle = store.subscribe(events.append)
    await store.put("key", b"bytes")
    await store.get_bytes("key")
    await store.delete("key")
    assert [(event.kind, event.tier, list(event.names)) for event in events] == [
        ("stored", "l1", ["key"]),
        ("accessed", "l1", ["key"]),
        ("deleted", "l1", ["key"]),
    ]
    assert caplog.text.count("a listener raised") == 1
    handle.cancel()
    handle.cancel()
    await store.put("key", b"bytes")
    assert len(events) == 3


async def test_raising_instead_of_returning_is_a_choice(
    disk: StoppableDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async with TieredStore(l1="4MiB", l2=[disk], fail_open=False, on_put_failure="raise") as store:
        await store.put("key", b"bytes")
        evict_all(store)
        with disk.failing(OSError(5, "Input/output error")):
            with (
                caplog.at_level(logging.WARNING),
                pytest.raises(PutFailedError, match="disk: failed") as caught,
            ):
                await store.put("other", b"bytes")
            assert caught.value.result.tiers["l1"].status is PutStatus.STORED
            for reading in (
                store.get("key"),
                store.get_into("key", bytearray(5)),
                store.exists("key"),
            ):
                with pytest.raises(TierUnavailableError, match="Input/output error"):
                    await reading
            (result,) = await store.get_many(["key"])
            assert result.status is GetStatus.UNKNOWN
    assert caplog.text.count("tier disk is failing") == 1


async def test_hits_give_way_to_others_after_about_a_millisecond_of_them(
    store: TieredStore,
) -> None:
    await store.put("key", b"bytes")
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.lowlevel.checkpoint()
        before = turns
        for _ in range(255):
            with await store.get("key") as lease:  # type: ignore[union-attr]
                assert lease.nbytes == 5
        assert turns == before
        for _ in range(1000):
            with await store.get("key"):  # type: ignore[union-attr]
                pass
        assert turns >= before + 3
        before = turns
        for _ in range(100):
            with await store.get_many(["key"] * 10):
                pass
        assert before + 3 <= turns < before + 100
        tasks.cancel_scope.cancel()


async def test_questions_are_answered_without_reading(
    store: TieredStore, disk: StoppableDisk
) -> None:
    salted = ObjectKey("llama", 1, b"\x01", cache_salt="user-42")
    await store.put_many([("a", b"1"), ("b", b"22"), (salted, b"333")])
    inside(store).l1.clear()
    await store.put("b", b"22")
    a, b, c = await store.stat_many(["a", "b", "c"])
    assert (a.info, b.info, c.info) == (ValueInfo(1, "disk"), ValueInfo(2, "l1"), None)
    assert c.status is GetStatus.MISS
    assert await store.stat("c") is None
    assert await store.match_prefix(["a", "b", "c", "a"]) == 2
    assert await store.match_prefix(["a", "b"]) == 2
    assert await store.match_prefix([]) == 0
    assert {key async for key in store.keys("disk")} == {"a", "b", salted}
    assert {key async for key in store.keys("disk", tenant="user-42")} == {salted}
    assert {key async for key in store.keys("disk", prefix="a")} == {"a"}
    assert {key async for key in store.keys("l1", tenant="")} == {"b"}
    with pytest.raises(ConfigError, match="tier='dsk' must be one of 'l1', 'disk'"):
        [key async for key in store.keys("dsk")]
    assert disk.reads == []


async def test_l1_alone_answers_at_once(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    with store.get_nowait("key") as lease:  # type: ignore[union-attr]
        assert bytes(lease) == b"bytes"
    inside(store).l1.clear()
    assert store.get_nowait("key") is None
