"""A server that lies: no wrong byte, no acknowledgement that was none, no end of the process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import pytest

from tests.store.inside import inside
from tests.valkey_faults.hostile import HostileServer, Reply, bulk, endless
from tieredkv import DeleteStatus, GetStatus, PutStatus, TieredStore
from tieredkv.backends import ValkeyBackend
from tieredkv.errors import TierError
from tieredkv.frames import TRAILER_BYTES
from tieredkv.testing.content import content, gist

pytestmark = [pytest.mark.anyio, pytest.mark.network]

KEYS: Final = ("a", "b")
VALUE: Final = content("a", 3000)
STORED_BYTES: Final = len(VALUE) + TRAILER_BYTES

NUMBERS: Final[dict[str, Reply]] = {
    "a number as text": b"+%d\r\n" % STORED_BYTES,
    "a number as a value": bulk(b"%d" % STORED_BYTES),
    "the right number": b":%d\r\n" % STORED_BYTES,
    "a wrong number": b":7\r\n",
    "a negative number": b":-5\r\n",
    "a huge number": b":9223372036854775807\r\n",
}
VALUES: Final[dict[str, Reply]] = {
    "a value of the right size": bulk(bytes(STORED_BYTES)),
    "a short value": bulk(b"x"),
    "a long value": bulk(bytes(100_000)),
    "an empty value": bulk(b""),
    "two values": b"*2\r\n" + bulk(bytes(STORED_BYTES)) * 2,
    "two numbers": b"*2\r\n" + b":%d\r\n" % STORED_BYTES * 2,
}
OTHERS: Final[dict[str, Reply]] = {
    "nothing": b"_\r\n",
    "a fraction": b",3.5\r\n",
    "a truth": b"#t\r\n",
    "a list": b"*1\r\n+a\r\n",
    "an empty list": b"*0\r\n",
    "a table": b"%1\r\n+a\r\n+b\r\n",
    "an error": b"-ERR \xff\r\n",
    "no protocol": b"\x00\xff\r\n",
    "lists in lists": b"*1\r\n" * 5000,
}
SILENT: Final[dict[str, Reply]] = {
    "silence": b"",
    "half a value": b"$%d\r\nabc" % STORED_BYTES,
    "a value of a terabyte": b"$1000000000000\r\nabc",
    "a list of billions": b"*2147483647\r\n",
    "an endless value": endless(b"$1000000000000\r\n"),
    "an endless line": endless(b"+"),
}
REPLIES: Final = {**NUMBERS, **VALUES, **OTHERS}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # replies are read by the vendor, in threads: no loop makes a difference


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as hostile:
        yield hostile


@asynccontextmanager
async def store_over(server: HostileServer) -> AsyncIterator[TieredStore]:
    backend = ValkeyBackend(server.url, request_timeout_s=0.2, num_workers=1)
    server.answers.clear()
    async with TieredStore(l1="1MiB", l2=[backend]) as store:
        assert all(result.ok for result in await store.put_many([(key, VALUE) for key in KEYS]))
        inside(store).l1.clear()
        yield store


async def never_wrong(store: TieredStore) -> list[GetStatus]:
    """Read the values with and without their size; return what became of it."""
    statuses = []
    for sizes in ([None, None], [len(VALUE)] * 2):
        with await store.get_many(KEYS, sizes=sizes) as results:
            for result in results:
                statuses.append(result.status)
                if result.object is not None:
                    assert gist(bytes(result.object)) == gist(VALUE)
        inside(store).l1.clear()
    return statuses


@pytest.mark.parametrize("command", ["GET", "MGET", "STRLEN", "EXISTS"])
async def test_reads_bring_the_value_or_none(
    server: HostileServer, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    for reply in REPLIES.values():
        async with store_over(server) as store:
            server.answers[command] = reply
            await never_wrong(store)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("reply", SILENT.values(), ids=SILENT)
async def test_a_reply_without_end_is_given_up_and_its_connection_too(
    server: HostileServer, reply: Reply
) -> None:
    async with store_over(server) as store:
        server.answers["MGET"] = reply
        with anyio.fail_after(10):
            statuses = await never_wrong(store)
            assert GetStatus.UNKNOWN in statuses
            assert GetStatus.MISS not in statuses
            await server.hung_up()


@pytest.mark.parametrize("name", [*OTHERS, "a number as text", "a negative number"])
async def test_a_size_that_is_none_is_no_miss(server: HostileServer, name: str) -> None:
    async with store_over(server) as store:
        server.answers["STRLEN"] = REPLIES[name]
        assert {result.status for result in await store.stat_many(KEYS)} == {GetStatus.UNKNOWN}
        with await store.get_many(KEYS) as results:
            assert {result.status for result in results} == {GetStatus.UNKNOWN}


async def test_only_an_acknowledged_write_is_stored(server: HostileServer) -> None:
    for reply in REPLIES.values():
        async with store_over(server) as store:
            server.answers["SET"] = reply
            results = [*await store.put_many([(key, VALUE) for key in KEYS])]
            results.append(await store.put("c", VALUE))
            for result in results:
                assert result.tiers["valkey"].status in (PutStatus.FAILED, PutStatus.UNKNOWN)


async def test_only_an_acknowledged_delete_is_one(server: HostileServer) -> None:
    for name in (*OTHERS, "a number as text", "a negative number"):
        async with store_over(server) as store:
            server.answers["UNLINK"] = REPLIES[name]
            for result in await store.delete_many(KEYS):
                assert result.status in (DeleteStatus.FAILED, DeleteStatus.UNKNOWN)


async def test_a_listing_names_what_is_there_or_breaks_off(server: HostileServer) -> None:
    for reply in REPLIES.values():
        async with store_over(server) as store:
            server.answers["STRLEN"] = reply
            with suppress(TierError):
                assert {key async for key in store.keys("valkey")} <= set(KEYS)


async def test_other_keys_values_are_no_hits(server: HostileServer) -> None:
    async with store_over(server) as store:
        server.values[b"a"], server.values[b"b"] = server.values[b"b"], server.values[b"a"]
        with await store.get_many(KEYS) as results:
            assert {result.status for result in results} == {GetStatus.CORRUPT}


async def test_an_older_value_of_the_memory_is_no_hit(server: HostileServer) -> None:
    async with store_over(server) as store:
        assert gist(await store.get_bytes("a") or b"") == gist(VALUE)
        inside(store).l1.clear()
        # It says that the value has landed, where it lay before.
        server.answers["GET"] = NUMBERS["a number as text"]
        with await store.get_many(["a"], sizes=[len(VALUE)]) as results:
            assert results[0].status is GetStatus.MISS
