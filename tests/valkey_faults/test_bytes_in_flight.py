"""Connections that are cut, stall, lag, end early or change bytes: what callers see of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.store.inside import inside
from tests.valkey.conftest import warm_up
from tests.valkey_faults import stream_programs
from tests.valkey_faults.calls import backend_at, opened
from tieredkv import GetStatus, TieredStore
from tieredkv.config import KiB
from tieredkv.errors import TierUnavailableError
from tieredkv.testing.content import content, gist
from tieredkv.testing.leaks import LeakCheck
from tieredkv.testing.load import under_load
from tieredkv.testing.proxy import Direction, StreamFault, StreamFaultKind, TCPProxy
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.anyio, pytest.mark.network]

VALUE = content("key", 300 * KiB)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # replies are read by the vendor, in threads: no loop makes a difference


@pytest.fixture
def proxy(server: ValkeyServer) -> Iterator[TCPProxy]:
    warm_up(server.url)
    with TCPProxy(("127.0.0.1", server.port)) as running:
        yield running


def url_of(proxy: TCPProxy) -> str:
    return f"valkey://127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
@pytest.mark.parametrize("kind", ["cut", "truncate", "stall"])
async def test_a_connection_that_fails_is_named_and_replaced(
    proxy: TCPProxy, direction: Direction, kind: StreamFaultKind
) -> None:
    with LeakCheck(leases=False) as check:
        async with opened(url_of(proxy)) as backend, under_load(backend) as load:
            check.watch(backend)
            proxy.inject(fault := StreamFault(direction, kind, after_bytes=500_000))
            await load.failing()
            assert proxy.met(fault) == 1
            proxy.calm()
            await load.recovered()
        assert load.error_types == {TierUnavailableError}


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_bytes_that_lag_are_waited_for(proxy: TCPProxy, direction: Direction) -> None:
    async with opened(url_of(proxy)) as backend, under_load(backend) as load:
        fault = StreamFault(direction, "delay", after_bytes=100_000, delay_s=0.05, times=None)
        proxy.inject(fault)
        while not proxy.met(fault):
            await load.recovered()
    assert load.failures == {}


def test_whatever_byte_is_changed_no_read_brings_a_wrong_one(proxy: TCPProxy) -> None:
    """In a process of its own: the vendor's client is the first to see what comes."""
    with stream_programs.started("corruption", url_of(proxy)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            proxy.calm()
            direction, after_bytes, mask = line.split()
            fault = StreamFault(
                "to_server" if direction == "to_server" else "to_client",
                "corrupt",
                after_bytes=int(after_bytes),
                mask=int(mask),
            )
            proxy.inject(fault)
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0


async def test_with_checksums_a_changed_byte_of_a_value_is_corrupt_and_the_next_read_a_miss(
    proxy: TCPProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with TieredStore("8MiB", [backend_at(url_of(proxy))]) as store:
        await store.put("key", VALUE)
        inside(store).l1.clear()
        proxy.inject(StreamFault("to_client", "corrupt", after_bytes=100_000))
        (result,) = await store.get_many(["key"])
        assert result.status is GetStatus.CORRUPT
        await store.flush()
        assert await store.get_bytes("key") is None
    assert any(r.levelno == logging.WARNING and "key" in r.getMessage() for r in caplog.records)


async def test_with_sizes_alone_a_changed_byte_passes_and_a_missing_one_does_not(
    proxy: TCPProxy,
) -> None:
    """What ``integrity="size"`` promises, and what it does not."""
    async with TieredStore("8MiB", [backend_at(url_of(proxy))], integrity="size") as store:
        await store.put("key", VALUE)
        inside(store).l1.clear()
        proxy.inject(StreamFault("to_client", "corrupt", after_bytes=100_000))
        changed = await store.get_bytes("key")
        assert changed is not None
        assert sum(a != b for a, b in zip(changed, VALUE, strict=True)) == 1
        inside(store).l1.clear()
        proxy.inject(StreamFault("to_client", "truncate", after_bytes=100_000))
        (result,) = await store.get_many(["key"])
        assert result.status is GetStatus.UNKNOWN
        assert gist(await store.get_bytes("key")) == gist(VALUE)
