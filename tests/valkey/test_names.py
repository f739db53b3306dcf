"""Names and values as LMCache's adapter has them, both ways; and priorities, expiry, capacity."""

from __future__ import annotations

import pytest
from anyio.lowlevel import checkpoint

from tieredkv import ObjectKey, TieredStore
from tieredkv.backends import ValkeyBackend
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.backends.requests import Landing, Source
from tieredkv.testing.content import content
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.anyio, pytest.mark.network]

GOLDEN = [
    (ObjectKey("llama", 0xFF, b"\x00\x01\x02\x03"), b"llama@000000ff@0@00010203"),
    (
        ObjectKey("meta-llama/Llama-3-8B", 0x01020304, b"\xab\xcd", 26, "user-42"),
        b"meta-llama/Llama-3-8B@01020304@1a@abcd@user-42",
    ),
]


@pytest.mark.parametrize("prefix", ["", "prod"])
async def test_names_and_bare_values_are_those_of_lmcache(
    server: ValkeyServer, prefix: str
) -> None:
    head = f"{prefix}@".encode() if prefix else b""
    for number, (key, wire) in enumerate(GOLDEN):
        payload = content(number, 3000)
        server.command("SET", head + wire, payload)
        backend = ValkeyBackend(server.url, key_prefix=prefix)
        async with TieredStore(l1="64MiB", l2=[backend], integrity="size") as store:
            assert await store.get_bytes(key) == payload
        server.command("DEL", head + wire)
        backend = ValkeyBackend(server.url, key_prefix=prefix)
        async with TieredStore(l1="64MiB", l2=[backend], integrity="size") as store:
            await store.put(key, payload)
        assert server.command("GET", head + wire) == payload
        assert server.command("TTL", head + wire) == -1
    assert sorted(server.command("KEYS", "*")) == sorted(head + wire for _, wire in GOLDEN)


async def test_the_shorter_expiry_counts_and_is_rounded_up(server: ValkeyServer) -> None:
    backend = ValkeyBackend(server.url, ttl_s=60)
    await backend.open()
    ttls = {"none": None, "shorter": 5.0001, "longer": 3600.0}
    await backend.write_many(
        [Source(name, b"value", ttl_s=ttl).request() for name, ttl in ttls.items()]
    )
    left = {name: server.command("PTTL", name) for name in ttls}
    await backend.aclose()
    assert 50_000 < left["none"] <= 60_000
    assert 4000 < left["shorter"] <= 5001
    assert 50_000 < left["longer"] <= 60_000


async def test_a_capacity_of_ours_evicts_what_was_not_used_for_longest(
    server: ValkeyServer,
) -> None:
    backend = ValkeyBackend(server.url, key_prefix="p", capacity=3500)
    await backend.open()
    for name in ("a", "b", "c"):
        await backend.write_many([Source(name, bytes(1000)).request()])
    await backend.read_many([Landing("a", 1000).request()])
    await backend.write_many([Source("d", bytes(1000)).request()])
    details = (await backend.status()).details
    await backend.aclose()
    assert sorted(server.command("KEYS", "*")) == [b"p@a", b"p@c", b"p@d"]
    assert (details["current_size_bytes"], details["evicted"]) == (3000, 1)


async def test_what_was_there_before_counts_and_strangers_stay(server: ValkeyServer) -> None:
    names = [ObjectKey("m", 0, bytes([number])).wire_name for number in range(4)]
    for name in names:
        server.command("SET", name, bytes(1000))
    server.command("SET", "stranger", bytes(1000))
    backend = ValkeyBackend(server.url, capacity=2500)
    await backend.open()
    while server.command("DBSIZE") > 3:
        await checkpoint()
    await backend.aclose()
    assert server.command("EXISTS", "stranger") == 1


async def test_a_value_over_the_capacity_is_refused(server: ValkeyServer) -> None:
    backend = ValkeyBackend(server.url, key_prefix="p", capacity=3500)
    await backend.open()
    (outcome,) = await backend.write_many([Source("big", bytes(3501)).request()])
    await backend.aclose()
    assert (outcome.status, outcome.reason) == (PutStatus.REJECTED, "too_large")


async def test_a_key_of_another_type_fails_alone_with_the_remedy(server: ValkeyServer) -> None:
    server.command("LPUSH", "list", "element")
    server.command("SET", "good", b"value")
    backend = ValkeyBackend(server.url)
    await backend.open()
    (read,) = await backend.read_many([Landing("list", 5).request()])
    stats = await backend.stat_many(["list", "good"])
    status = await backend.status()
    await backend.aclose()
    assert [read.status, *(stat.status for stat in stats)] == [
        GetStatus.UNKNOWN,
        GetStatus.UNKNOWN,
        GetStatus.HIT,
    ]
    assert "key_prefix" in str(read.error)
    assert status.is_healthy


async def test_one_larger_value_does_not_spoil_its_group(server: ValkeyServer) -> None:
    for number in range(20):
        server.command("SET", f"n{number}", bytes([number]) * (5000 if number == 7 else 1000))
    backend = ValkeyBackend(server.url)
    await backend.open()
    landings = [Landing(f"n{number}", 1000) for number in range(20)]
    outcomes = await backend.read_many([landing.request() for landing in landings])
    await backend.aclose()
    statuses = [outcome.status for outcome in outcomes]
    assert statuses.pop(7) is GetStatus.REJECTED
    assert statuses == [GetStatus.HIT] * 19
    del landings[7]
    assert all(landing.value == bytes([int(landing.name[1:])]) * 1000 for landing in landings)
