"""A tenant who wants another's values read, gone, counted, or kept out."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import DeleteStatus, GetStatus, L1Config, ObjectKey, PutStatus, TieredStore
from tieredkv.backends import Backend, DiskBackend
from tieredkv.config import KiB
from tieredkv.errors import ConfigError, KeyFormatError, OutOfMemoryError
from tieredkv.keys import Key, wire_name_of
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio

BLOCK: Final = 8 * KiB
VALUE: Final = bytes(BLOCK - 64)  # a block, with its trailer
SECRET: Final = b"anna's " * 1000
NUMBERS: Final = range(40)

SALTS: Final = (
    "mallory",
    "",
    "ann",
    "anna ",
    "Anna",
    "ANNA",
    "*",
    "?nna",
    "[a]nna",
    "%61nna",
    "an",
)
"""Whom somebody could be who wants to pass for anna."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let puts that are refused not wait a second for memory."""
    monkeypatch.setattr("tieredkv.tiers.memory._MEMORY_WAIT_S", 0.02)


def key(tenant: str, number: int = 0) -> ObjectKey:
    return ObjectKey("llama", 0, bytes([number]), cache_salt=tenant)


@asynccontextmanager
async def filled(*backends: Backend, **settings: int | str) -> AsyncIterator[TieredStore]:
    """A store of 1 MiB where anna has values in every tier, and mallory a quota of 4 blocks."""
    config = L1Config(capacity="1MiB", overflow=settings.pop("overflow", 0), eviction_policy="lru")
    async with TieredStore(config, backends) as store:
        await store.set_quota("mallory", 4 * BLOCK)
        for number in NUMBERS:
            assert (await store.put(key("anna", number), VALUE)).ok
        yield store


def lost(store: TieredStore) -> list[int]:
    """Return the numbers of anna's values that L1 has no more."""
    names = inside(store).l1.names()
    return [number for number in NUMBERS if wire_name_of(key("anna", number)) not in names]


# -- reading and measuring -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["l1", "disk", "memory"])
async def test_no_question_under_another_salt_finds_a_value(tmp_path: Path, where: str) -> None:
    tiers: dict[str, list[Backend]] = {
        "l1": [],
        "disk": [DiskBackend(tmp_path)],
        "memory": [MemoryBackend()],
    }
    async with TieredStore("1MiB", tiers[where]) as store:
        assert (await store.put(key("anna"), SECRET)).ok
        if where != "l1":
            inside(store).l1.clear()
        wire_name = wire_name_of(key("anna"))
        guesses: list[Key] = [key(salt) for salt in SALTS]
        guesses += [wire_name, f"{wire_name} ", wire_name.replace("@", "%40")]
        for guess in guesses:
            assert await store.get(guess) is None
            assert await store.get(guess, size=len(SECRET)) is None
            assert await store.get_into(guess, bytearray(len(SECRET))) is None
            assert await store.stat(guess) is None
            assert not await store.exists(guess)
            assert await store.match_prefix([guess]) == 0
            async with store.lookup([guess]) as lookup:
                assert lookup.hits == (False,)
            prefetched = await store.prefetch([guess])
            assert [result.status for result in prefetched.results] == [GetStatus.MISS]
            assert (await store.delete(guess)).status is DeleteStatus.ABSENT
        for salt in SALTS:
            assert [found async for found in store.keys(where, tenant=salt)] == []
            assert await store.clear(tiers=[where], tenant=salt) == {where: 0}
        assert await store.get_bytes(key("anna")) == SECRET


@pytest.mark.parametrize("salt", ["x@anna", "@anna", "anna\0", "anna\n", "../anna", "{anna}"])
def test_a_salt_cannot_reach_into_another_field(salt: str) -> None:
    with pytest.raises(KeyFormatError):
        key(salt)


@pytest.mark.parametrize("model", ["llama@00000000@0@00@anna", "llama@", "llama\nanna"])
def test_nor_can_a_model(model: str) -> None:
    with pytest.raises(KeyFormatError):
        ObjectKey(model, 0, b"\0")


# -- evicting and exhausting ---------------------------------------------------------------------


async def test_more_and_more_values_push_out_only_her_own(anyio_backend: object) -> None:
    async with filled() as store:
        for number in range(200):
            await store.put(key("mallory", number), VALUE)
        assert lost(store) == []


async def test_values_that_are_being_filled_count(anyio_backend: object) -> None:
    async with filled() as store, contextlib.AsyncExitStack() as slots:
        for number in range(4):
            await slots.enter_async_context(store.reserve(key("mallory", number), len(VALUE)))
        with pytest.raises(OutOfMemoryError):
            await slots.enter_async_context(store.reserve(key("mallory", 5), len(VALUE)))
        assert store.stats().l1.usage_bytes["mallory"] == 4 * BLOCK
        assert (await store.put(key("mallory", 7), VALUE)).tiers["l1"].reason == "quota"
        assert lost(store) == []


async def test_values_that_were_replaced_or_deleted_count_while_they_are_read(
    anyio_backend: object,
) -> None:
    async with filled() as store:
        leases = []
        for _ in range(6):
            if (await store.put(key("mallory"), VALUE)).ok:
                leases.append(await store.get(key("mallory")))
                await store.delete(key("mallory"))
        assert len(leases) == 4
        assert lost(store) == []
        for lease in leases:
            assert lease is not None
            lease.release()
        assert (await store.put(key("mallory"), VALUE)).ok


async def test_so_do_views_without_a_lease(anyio_backend: object) -> None:
    async with filled() as store:
        views = []
        for number in range(6):
            if (await store.put(key("mallory", number), VALUE)).ok:
                async with _leased(store, key("mallory", number)) as view:
                    views.append(view)
        assert len(views) == 4
        assert lost(store) == []
        views.clear()
        assert (await store.put(key("mallory"), VALUE)).ok


@asynccontextmanager
async def _leased(store: TieredStore, wanted: Key) -> AsyncIterator[memoryview]:
    lease = await store.get(wanted)
    assert lease is not None
    with lease:
        yield lease.view


async def test_loads_count_too(tmp_path: Path) -> None:
    async with filled(StoppableDisk(tmp_path)) as store:
        keys = [key("mallory", number) for number in range(30)]
        for wanted in keys:  # to the disk, at least
            await store.put(wanted, VALUE)
        await store.flush()
        with await store.get_many(keys) as results:
            assert sum(result.object is not None for result in results) == 4
        assert lost(store) == []
        await store.prefetch(keys, policy="full")
        assert lost(store) == []


async def test_pins_keep_only_what_the_quota_lets_in(anyio_backend: object) -> None:
    async with filled() as store:
        keys = [key("mallory", number) for number in range(6)]
        async with contextlib.AsyncExitStack() as lookups:
            for wanted in keys:
                await store.put(wanted, VALUE)
                await lookups.enter_async_context(store.lookup([wanted], owner="mallory"))
            pins = (await store.status())["pins"]
            assert sum(pin["kept_bytes"] for pin in pins) <= 4 * BLOCK
            for number in NUMBERS:
                assert (await store.put(key("anna", number), VALUE)).ok
        assert lost(store) == []


async def test_what_is_refused_in_one_tier_takes_none_of_anothers_quota(tmp_path: Path) -> None:
    async with filled(DiskBackend(tmp_path)) as store:
        await store.set_quotas({"mallory": 2 * BLOCK, "anna": 100 * BLOCK}, tier="disk")
        before = store.stats().tiers["disk"].usage_bytes["anna"]
        for number in range(20):
            result = await store.put(key("mallory", number), VALUE)
            assert (result.tiers["disk"].status is PutStatus.STORED) == (number < 2)
        usage = store.stats().tiers["disk"].usage_bytes
        assert usage == {"anna": before, "mallory": 2 * BLOCK}


async def test_a_quota_is_the_tenants_alone_whatever_she_is_called(anyio_backend: object) -> None:
    async with filled() as store:
        for salt in SALTS:
            with contextlib.suppress(ConfigError):
                await store.set_quota(salt, 0)
        assert lost(store) == []
        assert store.stats().l1.usage_bytes["anna"] == len(NUMBERS) * BLOCK


async def test_who_looks_at_the_health_of_a_store_learns_no_names(tmp_path: Path) -> None:
    async with filled(DiskBackend(tmp_path)) as store:
        await store.set_quota("anna", "1MiB", tier="disk")
        await store.put(key("mallory"), VALUE)
        said: Sequence[object] = [await store.status(), repr(store)]
        assert not any(tenant in str(text) for tenant in ("anna", "mallory") for text in said)
