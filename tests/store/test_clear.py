"""Clearing tiers and tenants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import ALL, ObjectKey, TieredStore
from tieredkv.config import MiB
from tieredkv.errors import ConfigError, TierError, TierUnavailableError
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio


def key_of(number: int, tenant: str) -> ObjectKey:
    return ObjectKey("llama", 0, bytes([number]), cache_salt=tenant)


@pytest.fixture
async def filled(store: TieredStore) -> TieredStore:
    for number in range(3):
        for tenant in ("", "anna", "bert"):
            await store.put(key_of(number, tenant), b"value")
    await store.put("plain", b"value")
    return store


async def names(store: TieredStore, tier: str) -> set[str]:
    return {key if isinstance(key, str) else key.wire_name async for key in store.keys(tier)}


async def test_l1_alone_unless_told(filled: TieredStore) -> None:
    assert await filled.clear() == {"l1": 10}
    assert await names(filled, "l1") == set()
    assert len(await names(filled, "disk")) == 10
    assert await filled.get_bytes("plain") == b"value"


async def test_a_dry_run_counts_and_removes_nothing(filled: TieredStore) -> None:
    assert await filled.clear(tiers=["l1", "disk"], dry_run=True) == {"l1": 10, "disk": 10}
    assert len(await names(filled, "l1")) == len(await names(filled, "disk")) == 10


@pytest.mark.parametrize(("tenant", "count"), [("anna", 3), ("", 4), ("nobody", 0), (ALL, 10)])
async def test_one_tenant_in_every_tier(filled: TieredStore, tenant: object, count: int) -> None:
    removed = await filled.clear(tiers=["l1", "disk"], tenant=tenant)  # type: ignore[arg-type]
    assert removed == {"l1": count, "disk": count}
    assert len(await names(filled, "disk")) == 10 - count
    assert await filled.exists(key_of(0, "bert")) == (tenant is not ALL)


@pytest.mark.parametrize("error", [TierUnavailableError, TierError])
async def test_what_a_tier_did_not_remove_is_not_read(
    error: type[TierError], anyio_backend: object
) -> None:
    tier = FaultyBackend(MemoryBackend())
    async with TieredStore(4 * MiB, [tier]) as store:
        await store.put("key", b"value")
        tier.inject(Fault("delete", "raise", error=error))
        assert await store.clear(tiers=["l1", "memory"]) == {"l1": 1, "memory": 0}
        assert await store.get_bytes("key") is None


async def test_readers_keep_their_bytes(filled: TieredStore) -> None:
    lease = await filled.get("plain")
    assert lease is not None
    with lease:
        await filled.clear(tiers=["l1", "disk"])
        assert bytes(lease) == b"value"
    assert filled.stats().l1.used_bytes == 0


async def test_thousands(store: TieredStore) -> None:
    await store.put_many([(f"key {number}", b"") for number in range(500)])
    await store.put_many([(f"more {number}", b"") for number in range(700)])
    await store.flush()
    assert await store.clear(tiers=["disk"]) == {"disk": 1200}
    assert await names(store, "disk") == set()


async def test_a_space_that_others_use_is_refused(tmp_path: Path) -> None:
    class Shared(StoppableDisk):
        has_own_space = False

    async with TieredStore(4 * MiB, l2=[Shared(tmp_path)]) as store:
        await store.put("key", b"value")
        with pytest.raises(ConfigError, match=r"'disk' has no space of its own.*prefix"):
            await store.clear(tiers=["l1", "disk"])
        assert await names(store, "l1") == {"key"}


async def test_arguments_are_checked_before_anything_is_removed(filled: TieredStore) -> None:
    with pytest.raises(TypeError, match=r"tiers=\['disk'\]"):
        await filled.clear(tiers="disk")
    with pytest.raises(ConfigError, match=r"tier='dsk'.*'disk'"):
        await filled.clear(tiers=["l1", "dsk"])
    with pytest.raises(ConfigError, match="dry_run='yes'"):
        await filled.clear(dry_run="yes")  # type: ignore[arg-type]
    assert len(await names(filled, "l1")) == 10


async def test_usage_is_told_by_tenant(filled: TieredStore) -> None:
    usage = filled.stats().l1.usage_bytes
    assert usage == {"": 4 * 4096, "anna": 3 * 4096, "bert": 3 * 4096}
    await filled.put(key_of(0, "anna"), bytes(5000))
    assert filled.stats().l1.usage_bytes["anna"] == 4 * 4096
    await filled.clear(tenant="bert")
    await filled.delete("plain")
    assert filled.stats().l1.usage_bytes == {"": 3 * 4096, "anna": 4 * 4096}
