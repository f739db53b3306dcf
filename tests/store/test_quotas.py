"""Quotas of tenants: checked before the write, in every tier, at nobody else's cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import (
    ALL,
    BlockingTieredStore,
    DeleteStatus,
    GetStatus,
    L1Config,
    ObjectKey,
    PutStatus,
    TieredStore,
)
from tieredkv.backends import DiskBackend, StoredName, WriteRequest
from tieredkv.config import KiB
from tieredkv.errors import ConfigError, TierError
from tieredkv.results import DeleteOutcome, StatOutcome, WriteOutcome
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers.capacity import Account

pytestmark = pytest.mark.anyio

BLOCK = 8 * KiB
VALUE = bytes(BLOCK - 64)  # a block, with its trailer


def key(tenant: str, number: int) -> ObjectKey:
    return ObjectKey("llama", 0, bytes([number]), cache_salt=tenant)


def held(store: TieredStore, tenant: str) -> list[int]:
    """Return the numbers of a tenant's values in L1."""
    keys = [ObjectKey.parse(name) for name in inside(store).l1.names() if "@" in name]
    return sorted(k.chunk_hash[0] for k in keys if k.cache_salt == tenant)


async def test_a_tenant_at_its_quota_makes_room_from_its_own_values(anyio_backend: object) -> None:
    async with TieredStore(L1Config(capacity="1MiB", eviction_policy="lru")) as store:
        await store.set_quota("anna", 3 * BLOCK)
        for n in range(6):
            assert (await store.put(key("bob", n), VALUE)).ok
            assert (await store.put(key("anna", n), VALUE)).ok
        assert held(store, "anna") == [3, 4, 5]
        assert held(store, "bob") == list(range(6))
        assert store.stats().l1.usage_bytes["anna"] == 3 * BLOCK
        assert store.stats().l1.removed["quota"] == 3


async def test_a_value_that_is_replaced_does_not_count_twice(anyio_backend: object) -> None:
    async with TieredStore("1MiB") as store:
        await store.set_quota("anna", 2 * BLOCK)
        for _ in range(3):
            for n in range(2):
                assert (await store.put(key("anna", n), VALUE)).ok
        assert held(store, "anna") == [0, 1]
        assert "quota" not in store.stats().l1.removed


async def test_without_room_of_its_own_a_put_is_rejected_and_nothing_is_evicted(
    anyio_backend: object,
) -> None:
    async with TieredStore(L1Config(capacity="1MiB", overflow=0)) as store:
        await store.set_quota("anna", 2 * BLOCK)
        await store.put(key("anna", 0), VALUE)
        lease = await store.get(key("anna", 0))
        assert lease is not None
        result = await store.put(key("anna", 1), bytes(2 * BLOCK - 64))
        assert not result.ok
        assert result.tiers["l1"].status is PutStatus.REJECTED
        assert result.tiers["l1"].reason == "quota"
        result = await store.put(key("anna", 2), bytes(3 * BLOCK))
        assert result.tiers["l1"].reason == "quota"
        assert held(store, "anna") == [0]
        lease.release()
        assert (await store.put(key("anna", 1), bytes(2 * BLOCK - 64))).ok


async def test_zero_lets_nothing_in_and_the_default_is_exempt(anyio_backend: object) -> None:
    async with TieredStore("1MiB") as store:
        await store.set_quotas({"anna": 0})
        assert (await store.put(key("anna", 0), VALUE)).tiers["l1"].reason == "quota"
        assert (await store.put(key("bob", 0), VALUE)).ok
        assert (await store.put("without", VALUE)).ok
        await store.set_quotas({ALL: 0, "anna": BLOCK, "": BLOCK})
        assert held(store, "bob") == []  # at once
        assert (await store.put(key("bob", 0), VALUE)).tiers["l1"].reason == "quota"
        assert (await store.put(key("anna", 0), VALUE)).ok
        assert (await store.put("other", VALUE)).ok
        await store.set_quota(ALL, None)
        assert (await store.put(key("bob", 0), VALUE)).ok
        assert store.quotas() == {"anna": BLOCK, "": BLOCK}
        store.quotas().clear()
        assert store.quotas() == {"anna": BLOCK, "": BLOCK}


async def test_what_a_tier_answers_with_enters_l1_within_the_quota_only(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore("1MiB", [disk]) as store:
        for n in range(4):
            await store.put(key("anna", n), VALUE)
        await store.clear()
        await store.set_quota("anna", 2 * BLOCK)
        for n in range(4):
            assert await store.get_bytes(key("anna", n)) == VALUE
        assert len(held(store, "anna")) == 2
        await store.set_quota("anna", 0)
        assert held(store, "anna") == []
        assert await store.get_bytes(key("anna", 0)) == VALUE


async def test_beyond_l1s_quota_a_value_goes_to_the_tiers_below(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore("1MiB", [disk]) as store:
        await store.set_quota("anna", 0)
        result = await store.put(key("anna", 0), VALUE)
        assert result.ok
        assert result.tiers["l1"].reason == "quota"
        assert result.tiers["disk"].status is PutStatus.STORED


async def test_a_tier_below_refuses_what_is_beyond_its_quota(tmp_path: Path) -> None:
    async with TieredStore("1MiB", [DiskBackend(tmp_path)]) as store:
        await store.put(key("anna", 0), VALUE)
        await store.flush()
    disk = StoppableDisk(tmp_path)
    async with TieredStore("1MiB", [disk]) as store:
        await store.set_quota("anna", 2 * BLOCK, tier="disk")
        assert store.stats().tiers["disk"].usage_bytes == {"anna": BLOCK}  # as it was found
        assert (await store.put(key("anna", 1), VALUE)).ok
        assert (await store.put(key("anna", 1), VALUE)).ok  # in its own place
        result = await store.put(key("anna", 2), VALUE)
        assert not result.ok
        assert result.tiers["l1"].status is PutStatus.STORED
        assert result.tiers["disk"].status is PutStatus.REJECTED
        assert result.tiers["disk"].reason == "quota"
        assert store.stats().tiers["disk"].outcomes["write", "quota"] == 1
        assert (await store.put(key("bob", 0), VALUE)).ok
        await store.delete(key("anna", 0))
        assert (await store.put(key("anna", 2), VALUE)).ok
        assert store.stats().tiers["disk"].usage_bytes == {"anna": 2 * BLOCK, "bob": BLOCK}


async def test_there_a_value_counts_with_its_trailer(tmp_path: Path) -> None:
    async with TieredStore("1MiB", [DiskBackend(tmp_path)]) as store:
        await store.set_quota("anna", BLOCK, tier="disk")
        result = await store.put(key("anna", 0), VALUE + b"x")
        assert result.tiers["disk"].reason == "quota"
        assert (await store.put(key("anna", 0), VALUE)).tiers["disk"].status is PutStatus.STORED


async def test_writes_under_way_count(tmp_path: Path) -> None:
    disk = StoppableDisk(tmp_path)
    async with TieredStore("1MiB", [disk]) as store:
        await store.set_quota("anna", 2 * BLOCK, tier="disk")
        with disk.stopped():
            results = []

            async def put() -> None:
                results.extend(await store.put_many([(key("anna", n), VALUE) for n in range(5)]))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put)
                await disk.entered()
                disk.let_go()
        assert sum(r.tiers["disk"].status is PutStatus.STORED for r in results) == 2
        assert sum(r.tiers["disk"].reason == "quota" for r in results) == 3
        assert len(disk.writes) == 2


async def test_a_tier_that_cannot_be_listed_keeps_its_quotas_as_they_were(
    anyio_backend: object,
) -> None:
    faulty = FaultyBackend(MemoryBackend())
    async with TieredStore("1MiB", [faulty]) as store:
        faulty.inject(Fault("list", "raise"))
        with pytest.raises(TierError):
            await store.set_quota("anna", 0, tier="memory")
        assert store.quotas(tier="memory") == {}
        assert (await store.put(key("anna", 0), VALUE)).ok


async def test_what_a_tier_holds_is_known_from_its_listing_and_its_answers(
    anyio_backend: object,
) -> None:
    account = Account()

    def write(name: str, nbytes: int, status: PutStatus) -> None:
        request = WriteRequest(name, nbytes, lambda: memoryview(b""))
        account.note("write", [request], [WriteOutcome(status)])

    async def listing() -> AsyncIterator[StoredName]:
        yield StoredName("a", 10)
        write("b", 25, PutStatus.STORED)
        account.note("delete", ["c"], [DeleteOutcome(DeleteStatus.DELETED)])
        yield StoredName("b", 20)  # as they were before
        yield StoredName("c", 30)

    async def not_asked_for() -> AsyncIterator[StoredName]:
        yield StoredName("z", 50)

    write("ignored", 1000, PutStatus.STORED)
    await account.change_quotas(lambda _: {"": 100}, listing())
    assert account.usage_bytes == {"": 35}
    await account.change_quotas(lambda _: {"": 200}, not_asked_for())
    assert (account.is_over("a", 175), account.is_over("a", 176)) == (False, True)
    account.note("stat", ["a", "d"], [StatOutcome(GetStatus.MISS), StatOutcome(GetStatus.HIT, 5)])
    write("e", 7, PutStatus.UNKNOWN)
    write("e", 9, PutStatus.FAILED)
    assert account.usage_bytes == {"": 25 + 5 + 7}
    account.note("delete", ["b", "d"], [DeleteOutcome(DeleteStatus.DELETED)] * 2)
    account.note("delete", ["e"], [DeleteOutcome(DeleteStatus.ABSENT)])
    assert account.usage_bytes == {}
    write("b", 25, PutStatus.STORED)
    await account.change_quotas(lambda _: {}, None)
    assert account.usage_bytes == {}
    await account.change_quotas(lambda _: {"": 100}, None)
    assert (account.is_over("b", 100), account.is_over("b", 101)) == (False, True)


async def test_quotas_that_are_set_at_a_time_hold_together(anyio_backend: object) -> None:
    async with TieredStore("1MiB", [MemoryBackend()]) as store:
        async with anyio.create_task_group() as tasks:
            for tenant in ("anna", "bob", "carl"):
                tasks.start_soon(partial(store.set_quota, tenant, BLOCK, tier="memory"))
        assert store.quotas(tier="memory") == {"anna": BLOCK, "bob": BLOCK, "carl": BLOCK}


async def test_a_wrong_quota_is_refused(anyio_backend: object) -> None:
    async with TieredStore("1MiB") as store:
        with pytest.raises(ConfigError, match="quota of 'anna'='4G' has two readings"):
            await store.set_quota("anna", "4G")
        with pytest.raises(ConfigError, match="quota of 'anna'=-1 is outside 0"):
            await store.set_quota("anna", -1)
        with pytest.raises(ConfigError, match="tier='disk' must be one of 'l1'"):
            await store.set_quota("anna", 1, tier="disk")
        with pytest.raises(TypeError, match="a tenant is a str or ALL, not int"):
            await store.set_quota(7, None)  # type: ignore[arg-type]
        assert store.quotas() == {}


async def test_status_counts_tenants_and_does_not_list_them(anyio_backend: object) -> None:
    async with TieredStore("1MiB") as store:
        await store.put(key("anna", 0), VALUE)
        status = await store.status()
        assert status["l1"]["num_tenants"] == 1
        assert "anna" not in str(status)


def test_the_blocking_store_has_quotas_too() -> None:
    with BlockingTieredStore("1MiB") as store:
        store.set_quota("anna", "8KiB")
        store.set_quotas({**store.quotas(), ALL: 0})
        assert store.quotas() == {"anna": 8 * KiB, ALL: 0}
