"""The bucket as a tier of a store: frames, leases, reading into memory of the caller."""

from __future__ import annotations

import pytest

from tests.hfbucket.media import Buckets
from tieredkv import ObjectKey, TieredStore
from tieredkv.config import MiB
from tieredkv.results import PutStatus
from tieredkv.testing import hub
from tieredkv.testing.content import content, gist

pytestmark = [pytest.mark.anyio, pytest.mark.network]

KEYS = [ObjectKey("org/llama", 0xFF, bytes([number]) * 32, 0, "tenant") for number in range(4)]


async def test_values_come_back_in_another_store(buckets: Buckets) -> None:
    values = {key: content(key, 100_000 * number) for number, key in enumerate(KEYS)}
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend()]) as store:
        for result in await store.put_many(list(values.items())):
            assert result.tiers["hfbucket"].status is PutStatus.STORED
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend()]) as store:
        for key, value in values.items():
            assert await store.get_bytes(key) == value
        out = bytearray(100_000)
        await store.clear(tiers=("l1",))
        assert await store.get_into(KEYS[1], out) == 100_000
        assert gist(out) == gist(values[KEYS[1]])


async def test_bare_values_are_what_lmcache_reads_and_writes(buckets: Buckets) -> None:
    value = content("value", 50_000)
    path = "prod/org%2Fllama%40000000ff%400%40" + "00" * 32 + "%40tenant"
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend()], integrity="size") as store:
        await store.put(KEYS[0], value)
    assert buckets.call("get", path) == value
    other = content("other", 60_000)
    buckets.call("put", path, other)
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend()], integrity="size") as store:
        assert await store.get_bytes(KEYS[0]) == other


async def test_bytes_that_changed_on_the_way_are_never_returned(buckets: Buckets) -> None:
    value = content("value", 50_000)
    settings = {"compression": "none"}
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend(**settings)]) as store:
        await store.put(KEYS[0], value)
    buckets.server.inject(hub.Fault(path="/cas/data/", corrupt_byte=5000))
    async with TieredStore(l1=16 * MiB, l2=[buckets.backend(**settings)]) as store:
        assert await store.get_bytes(KEYS[0]) is None
        assert await store.get_bytes(KEYS[0]) is None
