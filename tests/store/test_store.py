"""The facade over L1 and one tier: what callers give and what they get."""

from __future__ import annotations

import gc
import logging
import threading
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from tests.store.inside import inside, users
from tests.store.stoppable import StoppableDisk
from tieredkv import (
    GetStatus,
    L1Config,
    ObjectKey,
    PutStatus,
    TieredStore,
    ValueInfo,
    WriteThrough,
)
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import (
    ConfigError,
    KeyFormatError,
    LeaseReleasedError,
    OutOfMemoryError,
    PutFailedError,
    SizeMismatchError,
    StoreClosedError,
    TierUnavailableError,
    ValueFormatError,
    WrongLoopError,
)
from tieredkv.observe import CacheEvent

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
            assert out == value
            if from_disk:
                assert not len(inside(store).l1)  # a read into the caller's memory does not fill L1
            assert await store.get_bytes("key") == value
            if from_disk:
                evict_all(store)
            with await store.get_many(["key"], sizes=[len(value)]) as (result,):
                assert result.object is not None
                assert result.object.view == value


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


async def test_another_size_than_asked_for_is_rejected_on_disk_too(store: TieredStore) -> None:
    await store.put("key", b"12345")
    evict_all(store)
    (result,) = await store.get_many(["key"], sizes=[4])
    assert result.status is GetStatus.REJECTED
    assert isinstance(result.error, SizeMismatchError)
    assert (result.error.stored, result.error.wanted) == (5, 4)
    assert await store.get("key", size=4) is None
    assert await store.get_into("key", bytearray(4)) is None
    assert await store.get_into("key", bytearray(6)) is None
    assert await store.get_into("key", bytearray(5)) == 5


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


async def test_a_value_expires_in_every_tier(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("brief", b"1", ttl_s=50)
    await store.put("lasting", b"2")
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: later)
    assert await store.get("brief") is None
    evict_all(store)
    (result,) = await store.get_many(["brief"])
    assert result.status is GetStatus.MISS
    assert store.stats().tiers["disk"].outcomes["read", "expired"] == 2
    assert await store.get_bytes("lasting") == b"2"


async def test_bare_values_cannot_expire_where_the_medium_does_not_know_how(tmp_path: Path) -> None:
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)], integrity="size") as store:
        result = await store.put("key", b"1", ttl_s=50)
        assert not result.ok
        assert result.tiers["disk"].status is PutStatus.SKIPPED
        assert result.tiers["disk"].reason == "ttl_unsupported"
        assert await store.get_bytes("key") == b"1"


async def test_bare_stores_read_what_framed_ones_wrote_but_not_the_other_way(
    tmp_path: Path,
) -> None:
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        await store.put("framed", b"framed value")
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)], integrity="size") as store:
        await store.put("bare", b"b" * 100)
        assert await store.get_bytes("framed") == b"framed value"
        evict_all(store)
        with await store.get_many(["framed"], sizes=[12]) as (result,):
            assert result.object is not None
            assert result.object.view == b"framed value"
        evict_all(store)
        out = bytearray(12)
        assert await store.get_into("framed", out) == 12
        assert out == b"framed value"
    async with TieredStore(l1="8MiB", l2=[DiskBackend(tmp_path)]) as store:
        (result,) = await store.get_many(["bare"])
        assert result.status is GetStatus.MISS
        assert store.stats().tiers["disk"].outcomes["read", "foreign"] == 1
        assert [name.name async for name in inside(store).tiers[0].backend.list_names("bare")] == [
            "bare"
        ]


async def test_a_corrupt_copy_is_never_served_and_is_dropped(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put_many([("good", b"g" * 1000), ("bad", b"b" * 1000)])
    evict_all(store)
    file = disk.file_of("bad")
    content = bytearray(file.read_bytes())
    content[500] ^= 1
    file.write_bytes(content)
    with await store.get_many(["good", "bad"]) as results:
        assert [result.status for result in results] == [GetStatus.HIT, GetStatus.CORRUPT]
        assert results[1].tier == "disk"
    await store.flush()
    assert not file.exists()
    (result,) = await store.get_many(["bad"])
    assert result.status is GetStatus.MISS


async def test_two_values_swapped_on_disk_are_found_out(
    store: TieredStore, disk: StoppableDisk
) -> None:
    await store.put_many([("a", b"1" * 100), ("b", b"2" * 100)])
    evict_all(store)
    a, b = disk.file_of("a"), disk.file_of("b")
    content = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(content)
    results = await store.get_many(["a", "b"])
    assert [result.status for result in results] == [GetStatus.CORRUPT, GetStatus.CORRUPT]


async def test_the_next_tier_answers_when_one_has_a_bad_copy_or_none(tmp_path: Path) -> None:
    near, far = (
        StoppableDisk(tmp_path / "near", name="near"),
        DiskBackend(tmp_path / "far", name="far"),
    )
    async with TieredStore(
        l1="8MiB", l2=[near, far], write_policy=WriteThrough(require="all")
    ) as store:
        await store.put_many([("bad", b"1" * 100), ("gone", b"2" * 100)])
        evict_all(store)
        near.file_of("bad").write_bytes(b"x" * 164)
        near.file_of("gone").unlink()
        with await store.get_many(["bad", "gone"]) as results:
            assert [result.tier for result in results] == ["far", "far"]
            assert [bytes(r.object) for r in results if r.object] == [b"1" * 100, b"2" * 100]


async def test_many_values_beyond_l1_all_come_back(store: TieredStore) -> None:
    values = {f"key-{n}": bytes([n]) * (60 * KiB + n) for n in range(200)}  # three times L1
    results = await store.put_many(values.items())
    assert all(result.ok for result in results)
    with await store.get_many(values) as got:
        assert {r.key: bytes(r.object) for r in got if r.object} == values
        assert {r.tier for r in got} == {"l1", "disk"}
    stats = store.stats()
    assert stats.l1.used_bytes <= stats.l1.capacity_bytes == 4 * MiB
    assert stats.pending_bytes == 0


async def test_a_value_larger_than_l1_goes_through_the_overflow(store: TieredStore) -> None:
    value = bytes(6 * MiB)
    result = await store.put("large", value)
    assert result.ok
    assert result.tiers["l1"].status is PutStatus.SKIPPED
    assert result.tiers["l1"].reason == "no_memory"
    lease = await store.get("large")
    assert lease is not None
    assert lease.tier == "disk"
    assert store.stats().l1.overflow_used_bytes > 6 * MiB
    assert lease.view == value
    lease.release()
    assert store.stats().l1.overflow_used_bytes == 0


async def test_without_memory_a_put_is_rejected_and_a_get_says_why(tmp_path: Path) -> None:
    l1 = L1Config(capacity="1MiB", overflow=0)
    async with TieredStore(l1=l1, l2=[DiskBackend(tmp_path)]) as store:
        await store.put("large", bytes(900 * KiB))
        await store.put("held", bytes(300 * KiB))
        lease = await store.get("held")
        assert lease is not None
        (result,) = await store.get_many(["large"])
        assert result.status is GetStatus.REJECTED
        assert "release leases" in str(result.error)
        put = await store.put("other", bytes(900 * KiB))
        assert not put.ok
        assert put.tiers["l1"].status is PutStatus.REJECTED
        assert put.tiers["disk"].status is PutStatus.SKIPPED
        lease.release()
        assert (await store.put("other", bytes(900 * KiB))).ok


async def test_a_put_waits_for_memory_that_is_about_to_be_released(tmp_path: Path) -> None:
    l1 = L1Config(capacity="1MiB", overflow=0)
    async with TieredStore(l1=l1, l2=[DiskBackend(tmp_path)]) as store:
        await store.put("held", bytes(600 * KiB))
        lease = await store.get("held")
        assert lease is not None
        async with anyio.create_task_group() as tasks:

            async def put() -> None:
                assert (await store.put("other", bytes(600 * KiB))).ok

            tasks.start_soon(put)
            await anyio.wait_all_tasks_blocked()
            lease.release()


async def test_views_outlive_leases_eviction_and_refill(store: TieredStore) -> None:
    await store.put("key", b"k" * 100_000)
    lease = await store.get("key")
    assert lease is not None
    view = lease.view
    array = np.frombuffer(memoryview(view)[10:90_000], dtype=np.uint16)
    lease.release()
    view.release()
    for n in range(200):
        await store.put(f"other-{n}", bytes([n]) * 100_000)
    gc.collect()  # what waits for the array must not be garbage itself
    assert (array == 0x6B6B).all()
    assert store.stats().blocks_held_by_views == 1
    del array
    assert store.stats().blocks_held_by_views == 0


async def test_leases_may_be_released_in_another_thread(store: TieredStore) -> None:
    await store.put("key", b"bytes")
    lease = await store.get("key")
    assert lease is not None
    thread = threading.Thread(target=lease.release)
    thread.start()
    thread.join()
    assert store.stats().l1.leases == 0
    assert users(store, "key") == 1


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
    assert caplog.text.count("a listener raised") == 3
    handle.cancel()
    handle.cancel()
    await store.put("key", b"bytes")
    assert len(events) == 3


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
        tasks.cancel_scope.cancel()


async def test_a_lease_held_too_long_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("tieredkv.pool.lease.time.monotonic", lambda: now)
    async with TieredStore(l1=L1Config(capacity="1MiB", lease_warn_s=60)) as store:
        await store.put("key", b"bytes")
        with await store.get("key") as held:  # type: ignore[union-attr]
            for _ in range(4):
                with await store.get("key"):  # type: ignore[union-attr]
                    now += 61
                    assert store.stats().l1.leases == 2
            assert caplog.text.count("'key' (5 bytes) has been held for more than 60 s") == 1
            assert bytes(held) == b"bytes"
        assert store.stats().l1.leases == 0


async def test_a_value_is_filled_in_place_and_invisible_before(store: TieredStore) -> None:
    async with store.reserve("key", 5) as slot:
        slot.view[:] = b"bytes"
        assert await store.get("key") is None
        assert slot.result is None
    assert slot.result is not None
    assert slot.result.ok
    inside(store).l1.clear()
    assert await store.get_bytes("key") == b"bytes"


async def test_an_exception_drops_what_was_reserved(store: TieredStore) -> None:
    async def fill() -> None:
        async with store.reserve("key", 100_000) as slot:
            slot.view[:5] = b"bytes"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fill()
    assert not await store.exists("key")
    assert store.stats().l1.used_bytes == 0


async def test_reserving_without_memory_says_so() -> None:
    async with TieredStore(l1=L1Config(capacity="1MiB", overflow=0)) as store:
        await store.put("held", bytes(600 * KiB))
        with (
            await store.get("held"),  # type: ignore[union-attr]
            pytest.raises(OutOfMemoryError, match="no memory for 614400 bytes"),
        ):
            await store.reserve("key", 600 * KiB).__aenter__()
        async with store.reserve("key", 600 * KiB) as slot:
            pass
        assert slot.result is not None
        assert slot.result.ok


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


async def test_more_memory_than_there_is_is_refused_in_words(disk: StoppableDisk) -> None:
    with pytest.raises(ConfigError, match="capacity=4398046511104: the system has not so much"):
        await TieredStore(
            l1=L1Config(capacity="4TiB", alignment_bytes=64 * KiB), l2=[disk]
        ).__aenter__()
