"""Look-ups pin what they find, so that it can be loaded; prefetches bring it into L1."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside, users
from tests.store.stoppable import StoppableDisk
from tieredkv import DeleteStatus, GetStatus, L1Config, TieredStore, WriteBack
from tieredkv.config import KiB, MiB
from tieredkv.errors import ConfigError, StoreClosedError
from tieredkv.observe import CacheEvent
from tieredkv.testing.faults import Fault, FaultKind, FaultyBackend
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


async def fill(store: TieredStore, count: int, size: int = 10 * KiB) -> list[str]:
    """Put values that lie in the tiers below and not in L1."""
    keys = [f"key-{n:03}" for n in range(count)]
    await store.put_many([(key, key.encode().ljust(size, b".")) for key in keys])
    await store.flush()
    inside(store).l1.clear()
    return keys


async def test_a_look_up_says_what_is_there_and_loads_it(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await fill(store, 3)
    await store.put("hot", b"hot")
    asked = ["key-000", "hot", "absent", "key-002", "hot"]
    async with store.lookup(asked) as found:
        assert found.hits == (True, True, False, True, True)
        assert found.prefix_length == 2
        assert [result.tier for result in found.results] == ["disk", "l1", None, "disk", "l1"]
        assert disk.reads == []
        with await found.load() as results:
            assert [result.key for result in results] == asked
            assert [r.object.nbytes if r.object else 0 for r in results] == [10240, 3, 0, 10240, 3]
            assert results[2].status is GetStatus.MISS
    assert store.stats().l1.leases == 0
    assert users(store, "hot") == 1


async def test_what_a_look_up_holds_is_deleted_in_no_tier(store: TieredStore) -> None:
    await fill(store, 1)
    await store.put("hot", b"hot")
    async with store.lookup(["key-000", "hot", "absent"]):
        kept = await store.delete_many(["key-000", "hot", "absent"])
        assert [r.status for r in kept] == [
            DeleteStatus.PINNED,
            DeleteStatus.PINNED,
            DeleteStatus.ABSENT,
        ]
        assert {str(outcome.status) for outcome in kept[0].tiers.values()} == {"pinned"}
        assert set(kept[0].tiers) == {"l1", "disk"}
        assert await store.clear(tiers=["l1", "disk"]) == {"l1": 0, "disk": 0}
        assert await store.exists_many(["key-000", "hot"]) == [True, True]
    assert (await store.delete("hot")).status is DeleteStatus.DELETED
    assert (await store.delete("key-000")).status is DeleteStatus.DELETED


async def test_two_look_ups_of_a_key_both_have_to_end(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    async with store.lookup(["key"]):
        async with store.lookup(["key", "key"]):
            pass
        assert (await store.delete("key")).status is DeleteStatus.PINNED
    assert (await store.delete("key")).status is DeleteStatus.DELETED


async def test_what_a_look_up_found_in_l1_is_not_evicted_before_it_is_loaded(
    store: TieredStore, disk: StoppableDisk
) -> None:
    keys = [f"hot-{n}" for n in range(10)]
    await store.put_many([(key, key.encode() * 1000) for key in keys])
    async with store.lookup(keys) as found:
        for n in range(100):  # more than L1 holds
            await store.put(f"other-{n}", bytes(60 * KiB))
        with await found.load() as results:
            assert [len(r.object) if r.object else None for r in results] == [5000] * 10
            assert disk.reads == []


async def test_look_ups_leave_half_of_l1_to_others(store: TieredStore) -> None:
    keys = [f"hot-{n}" for n in range(6)]
    eighth = 512 * KiB - 64  # a block of that, with the trailer
    await store.put_many([(key, bytes(eighth)) for key in keys])
    async with store.lookup(keys) as found:
        assert found.prefix_length == 6
        (pin,) = (await store.status())["pins"]
        assert (pin["keys"], pin["kept_bytes"]) == (6, 4 * eighth)
        for n in range(20):
            result = await store.put(f"other-{n}", bytes(500 * KiB))
            assert str(result.tiers["l1"].status) == "stored"
        with await found.load() as results:
            assert all(r.status is GetStatus.HIT for r in results)
            assert {r.tier for r in results} == {"l1", "disk"}


async def test_a_value_that_was_put_again_meanwhile_is_loaded_as_it_is_now(
    store: TieredStore,
) -> None:
    await fill(store, 2)
    async with store.lookup(["key-000", "key-001"]) as found:
        await store.put("key-000", b"another size")
        with await found.load() as results:
            assert [r.object.nbytes for r in results if r.object] == [12, 10 * KiB]


async def test_a_value_that_is_gone_nevertheless_is_a_miss(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await fill(store, 3)
    async with store.lookup(["key-000", "key-001", "key-002"]) as found:
        disk.file_of("key-001").unlink()  # another process's doing
        with await found.load() as results:
            assert [r.status for r in results] == [GetStatus.HIT, GetStatus.MISS, GetStatus.HIT]
    async with store.lookup(["key-000", "key-001", "key-002"]) as found:
        assert found.prefix_length == 1


async def test_what_is_being_deleted_is_not_found(store: TieredStore, disk: StoppableDisk) -> None:
    await fill(store, 1)
    async with anyio.create_task_group() as tasks:
        with disk.stopped():
            tasks.start_soon(store.put, "key-000", b"keeps the delete waiting")
            await disk.entered(2)
            tasks.start_soon(store.delete, "key-000")
            await anyio.wait_all_tasks_blocked()
            async with store.lookup(["key-000"]) as found:
                assert found.hits == (False,)
            disk.let_go()
    assert not await store.exists("key-000")


async def test_pins_lapse_and_say_whose_they_were(
    store: TieredStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.monotonic())
    monkeypatch.setattr("tieredkv.tiers.pins.time.monotonic", lambda: now)
    await store.put("key", b"bytes")
    async with store.lookup(["key"], owner="request 17", ttl_s=30) as found:
        now += 29
        (pin,) = (await store.status())["pins"]
        assert (pin["owner"], pin["keys"]) == ("request 17", 1)
        assert (pin["age_s"], pin["lapses_in_s"]) == (29, 1)
        assert (await store.delete("key")).status is DeleteStatus.PINNED
        now += 1
        assert (await store.delete("key")).status is DeleteStatus.DELETED
        assert store.stats().l1.used_bytes == 0
        with await found.load() as (result,):
            assert result.status is GetStatus.MISS
    assert caplog.text.count("a look-up of 'request 17' has held 1 keys for more than 30 s") == 1


async def test_what_a_lapsed_look_up_kept_makes_room_for_the_next(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"hot-{n}" for n in range(4)]
    await store.put_many([(key, bytes(400 * KiB)) for key in keys])
    async with store.lookup(keys, ttl_s=30):
        later = time.monotonic() + 31
        monkeypatch.setattr("tieredkv.tiers.pins.time.monotonic", lambda: later)
        async with store.lookup(keys):
            (pin,) = (await store.status())["pins"]
            assert pin["kept_bytes"] == 4 * 400 * KiB


async def test_a_tier_that_does_not_answer_is_no_hit(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await fill(store, 1)
    with disk.failing(OSError(5, "Input/output error")):
        async with store.lookup(["key-000"]) as found:
            assert found.results[0].status is GetStatus.UNKNOWN
            assert found.hits == (False,)
    assert (await store.delete("key-000")).status is DeleteStatus.DELETED


async def test_a_look_up_outlives_its_store(disk: StoppableDisk) -> None:
    async with TieredStore(l1="4MiB", l2=[disk]) as store:
        await store.put("key", b"bytes")
        held = store.lookup(["key"])
        found = await held.__aenter__()
    with pytest.raises(StoreClosedError):
        await found.load()
    await held.__aexit__(None, None, None)


async def test_a_prefetch_brings_the_leading_keys_into_l1(
    store: TieredStore, disk: StoppableDisk
) -> None:
    keys = await fill(store, 4)
    await store.put(keys[1], b"hot")
    result = await store.prefetch([keys[0], keys[1], "absent", keys[2]])
    assert result.prefix_length == 2
    assert [r.status for r in result.results] == [
        GetStatus.HIT,
        GetStatus.HIT,
        GetStatus.MISS,
        GetStatus.REJECTED,
    ]
    assert [r.tier for r in result.results] == ["disk", "l1", None, "disk"]
    assert result.loaded_bytes == 10 * KiB
    assert disk.reads == [keys[0]]
    assert store.get_nowait(keys[2]) is None
    with store.get_nowait(keys[0]) as lease:  # type: ignore[union-attr]
        assert lease.nbytes == 10 * KiB
    full = await store.prefetch(["absent", *keys, keys[3]], policy="full")
    assert [str(r.status) for r in full.results] == ["miss", "hit", "hit", "hit", "hit", "hit"]
    assert full.loaded_bytes == 20 * KiB
    assert store.stats().l1.leases == 0


async def test_a_prefetch_fills_at_most_half_of_l1(store: TieredStore) -> None:
    keys = await fill(store, 8, 500 * KiB)
    result = await store.prefetch(keys)
    assert [str(r.status) for r in result.results] == ["hit"] * 4 + ["rejected"] * 4
    assert result.prefix_length == 4
    assert store.stats().l1.used_bytes <= 2 * MiB
    assert store.stats().l1.overflow_used_bytes == 0


@pytest.mark.parametrize("kind", ["raise", "torn", "truncated"])
async def test_a_prefetch_that_fails_leaves_nothing_to_read_announce_or_store(
    anyio_backend: object, kind: FaultKind
) -> None:
    near, far = MemoryBackend(name="near"), FaultyBackend(MemoryBackend(name="far"))
    events: list[CacheEvent] = []
    async with TieredStore("4MiB", [near, far], write_policy=WriteBack()) as store:
        (key,) = await fill(store, 1)
        near.medium.delete(key)
        far.inject(Fault("read", kind))
        store.subscribe(events.append)
        result = await store.prefetch([key])
        assert result.results[0].status is not GetStatus.HIT
        assert store.get_nowait(key) is None
        await store.flush()
        assert near.medium.names() == []
        assert not [event for event in events if event.kind == "stored"]


async def test_a_prefetch_says_what_failed(store: TieredStore, disk: StoppableDisk) -> None:
    keys = await fill(store, 2)
    disk.file_of(keys[1]).write_bytes(b"x" * (10 * KiB + 64))
    result = await store.prefetch(keys)
    assert [r.status for r in result.results] == [GetStatus.HIT, GetStatus.MISS]
    with pytest.raises(ConfigError, match="policy='head' must be one of 'prefix', 'full'"):
        await store.prefetch(keys, policy="head")  # type: ignore[arg-type]


async def test_status_says_in_words_what_does_not_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = (StoppableDisk(tmp_path / name, name=name) for name in ("near", "far"))
    async with TieredStore(L1Config(capacity="1MiB"), [near, far]) as store:
        await store.put("key", b"bytes")
        await store.flush()
        status = await store.status()
        assert status["is_healthy"]
        assert status["l1"]["objects"] == 1
        assert status["tiers"]["near"]["is_healthy"]
        with near.failing(OSError(5, "Input/output error")), caplog.at_level(logging.ERROR):
            await store.put("key", b"bytes")
            await store.flush()
            status = await store.status()
            assert not status["is_healthy"]
            assert not status["tiers"]["near"]["is_healthy"]
            assert "Input/output error" in status["tiers"]["near"]["reason"]
            assert status["tiers"]["far"]["is_healthy"]
        await store.put("key", b"bytes")
        await store.flush()
        status = await store.status()
        assert status["is_healthy"], status
        assert status["tiers"]["near"]["pending_bytes"] == 0
        json.dumps(status)


async def test_a_key_that_was_deleted_can_be_pinned_again(store: TieredStore) -> None:
    await store.put("a", b"value")
    await store.delete("a")
    await store.put("a", b"value")
    async with store.lookup(["a"]) as found:
        assert found.hits == (True,)
        assert (await store.delete("a")).status is DeleteStatus.PINNED
