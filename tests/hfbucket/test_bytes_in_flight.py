"""Connections to the Hub that are cut, stall, lag, end early or change bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.hfbucket.calls import opened, read, statuses, write
from tests.hfbucket.media import Buckets
from tests.store.inside import inside
from tieredkv import GetStatus, PutStatus, TieredStore
from tieredkv.config import KiB
from tieredkv.errors import TierError, TierUnavailableError
from tieredkv.testing.content import content, gist
from tieredkv.testing.load import under_load
from tieredkv.testing.proxy import Direction, StreamFault, StreamFaultKind, TCPProxy

pytestmark = [pytest.mark.anyio, pytest.mark.network]

ROUNDS = 30
VALUES = {f"key-{number}": content(number, number * 50 * KiB + 100) for number in range(5)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def proxy(buckets: Buckets) -> Iterator[TCPProxy]:
    target = urlsplit(buckets.server.endpoint)
    assert target.hostname is not None
    assert target.port is not None
    with TCPProxy((target.hostname, target.port)) as running:
        yield running


def through(proxy: TCPProxy) -> dict[str, object]:
    return {"endpoint": f"http://127.0.0.1:{proxy.port}", "request_timeout_s": 0.3}


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
@pytest.mark.parametrize("kind", ["cut", "truncate", "stall"])
async def test_connections_that_fail_are_named_and_replaced(
    buckets: Buckets, proxy: TCPProxy, direction: Direction, kind: StreamFaultKind
) -> None:
    async with opened(buckets, **through(proxy)) as backend, under_load(backend) as load:
        proxy.inject(fault := StreamFault(direction, kind, after_bytes=300, times=None))
        await load.failing()
        assert proxy.met(fault)
        proxy.calm()
        await load.recovered()
    # The Hub refuses half a request in its own words.
    assert load.error_types <= {TierUnavailableError, TierError}


async def test_one_connection_that_fails_is_not_noticed(buckets: Buckets, proxy: TCPProxy) -> None:
    value = content("value", 100_000)
    async with opened(buckets, **through(proxy)) as backend:
        await write(backend, ("name", value))
        for kind in ("cut", "truncate", "stall", "delay"):
            proxy.inject(fault := StreamFault("to_client", kind, after_bytes=50_000))
            assert (await read(backend, "name", value)).status is GetStatus.HIT
            assert proxy.met(fault) == 1
            proxy.calm()


async def test_whatever_byte_is_changed_no_read_brings_a_wrong_one(
    buckets: Buckets, proxy: TCPProxy
) -> None:
    chance = random.Random(7)
    seen: set[GetStatus] = set()
    backend = buckets.backend(**through(proxy), compression="none", metadata_ttl_s=0)
    async with TieredStore("16MiB", [backend]) as store:
        for _ in range(ROUNDS):
            after_bytes = chance.choice((chance.randrange(500), chance.randrange(500 * KiB)))
            direction: Direction = chance.choice(("to_server", "to_client"))
            mask = 1 << chance.randrange(8)
            proxy.inject(StreamFault(direction, "corrupt", after_bytes=after_bytes, mask=mask))
            for put in await store.put_many(VALUES.items()):
                assert put.tiers["l1"].status is PutStatus.STORED
            await store.flush()
            inside(store).l1.clear()
            with await store.get_many(VALUES) as results:
                for result in results:
                    seen.add(result.status)
                    if result.object is not None:
                        assert gist(bytes(result.object)) == gist(VALUES[str(result.key)])
                    if result.status is GetStatus.UNKNOWN:
                        assert isinstance(result.error, TierError)
            inside(store).l1.clear()
            proxy.calm()
            inside(store).tiers[0].health.succeeded("another round")
    assert GetStatus.HIT in seen


async def test_a_changed_byte_of_a_content_is_corrupt_and_the_next_read_a_miss(
    buckets: Buckets, proxy: TCPProxy
) -> None:
    backend = buckets.backend(**through(proxy), compression="none")
    async with TieredStore("16MiB", [backend]) as store:
        await store.put("key", VALUES["key-4"])
        inside(store).l1.clear()
        await store.exists("key")  # so that what comes next is the content
        proxy.inject(StreamFault("to_client", "corrupt", after_bytes=100_000))
        (result,) = await store.get_many(["key"])
        assert result.status is GetStatus.CORRUPT
        await store.flush()
        assert statuses(await store.stat_many(["key"])) == [GetStatus.MISS]
