"""What a stopped server carries out when it goes on never brings old bytes back.

The values of a key have one size, so that a tier without frames cannot tell them apart by that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from hypothesis import settings

from tests.store.inside import inside
from tieredkv import PutStatus, TieredStore
from tieredkv.backends import DiskBackend, ValkeyBackend
from tieredkv.config import MiB
from tieredkv.testing.content import content
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.anyio, pytest.mark.stateful, pytest.mark.network]

SMALL = 5_000  # all of it waits in the server's socket
LARGE = 4 * MiB  # more than that takes: the rest follows when the server goes on


@pytest.fixture
def rounds(anyio_backend: tuple[str, dict[str, Any]]) -> int:
    if settings.get_current_profile_name() == "stateful":
        return 100
    return 8 if anyio_backend == ("asyncio", {"use_uvloop": False}) else 2


@pytest.fixture(params=["checksum", "size"])
def integrity(request: pytest.FixtureRequest) -> Literal["checksum", "size"]:
    mode: Literal["checksum", "size"] = request.param
    return mode


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A server to stop and to continue."""
    with ValkeyServer() as running:
        yield running


@pytest.fixture
async def tiers(
    server: ValkeyServer,
    tmp_path: Path,
    integrity: Literal["checksum", "size"],
    anyio_backend: object,
) -> AsyncIterator[Tiers]:
    disk = DiskBackend(tmp_path)
    valkey = ValkeyBackend(server.url, request_timeout_s=0.1, connect_timeout_s=0.5, num_workers=1)
    async with TieredStore("64MiB", [disk, valkey], integrity=integrity) as store:
        yield Tiers(store, disk, server)


class Tiers:
    """A store over disk and a server, and ways past it."""

    def __init__(self, store: TieredStore, disk: DiskBackend, server: ValkeyServer) -> None:
        self.store = store
        self.server = server
        self.valkey = inside(store).tiers[1]
        self._disk = disk

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Stop the server, to which there is a connection, as long as the block lasts."""
        await self.store.exists("nobody")
        while self.valkey.health.failure is not None:
            self.valkey.health.succeeded("another try")
            await self.store.exists("nobody")
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()

    async def put_in_vain(self, key: str, value: bytes) -> None:
        """Put a value while the server stands."""
        result = await self.store.put(key, value)
        assert result.ok, result
        report = await self.store.flush()
        outcome = report.failed["valkey"][key]
        assert outcome.status is PutStatus.UNKNOWN, outcome

    async def give_up(self) -> None:
        """Ask the server until it is not asked any more."""
        while not self.valkey.health.is_open:
            await self.store.exists("nobody")

    async def landed(self, key: str) -> bytes:
        """Wait until the server has a value, and return it."""
        with anyio.fail_after(60):
            while (value := self.server.command("GET", key)) is None:
                await anyio.sleep(0.001)
        assert isinstance(value, bytes)
        return value

    async def has_read_all(self) -> None:
        """Wait until the server has carried out all that it was sent."""
        with anyio.fail_after(60), self.server.connect() as connection:
            connection.command("PING")  # it has looked at every connection once
            while True:
                lines = bytes(connection.command("CLIENT", "LIST")).decode().splitlines()
                if all(" qbuf=0 " in line or "cmd=client|list" in line for line in lines):
                    return
                await anyio.sleep(0.001)

    async def read_from_server(self, key: str) -> bytes | None:
        """Read a value that no other tier has any more."""
        await self._disk.delete_many([key])
        await self.store.clear()
        return await self.store.get_bytes(key)


async def test_it_lands_after_a_put_or_delete_that_went_without_the_server(
    tiers: Tiers, rounds: int, integrity: str
) -> None:
    for number in range(rounds):
        key = f"key-{number}"
        old, new, newest = (content((key, age), SMALL) for age in ("old", "new", "newest"))
        async with tiers.stopped():
            await tiers.put_in_vain(key, old)
            await tiers.give_up()
            if number % 2:
                result = await tiers.store.put(key, new)
                assert (result.ok, result.tiers["valkey"].reason) == (True, "unavailable")
            else:
                await tiers.store.delete(key)
        assert (await tiers.landed(key))[:SMALL] == old
        tiers.valkey.health.succeeded("resumed")
        assert await tiers.read_from_server(key) is None
        assert (await tiers.store.put(key, newest)).ok
        await tiers.store.flush()
        served = newest if integrity == "checksum" else None  # a bare value cannot be told
        assert await tiers.read_from_server(key) == served


async def test_it_races_with_a_put_or_delete_that_the_server_acknowledges(
    tiers: Tiers, rounds: int
) -> None:
    may: set[bytes | None]
    for number in range(rounds):
        key = f"key-{number}"
        old, new = (content((key, age), LARGE) for age in ("old", "new"))
        async with tiers.stopped():
            await tiers.put_in_vain(key, old)
        if number % 2:
            await tiers.store.put(key, new)
            await tiers.store.flush()
            may = {new, None}
        else:
            await tiers.store.delete(key)
            may = {None}
        assert await tiers.read_from_server(key) in may
        await tiers.has_read_all()
        assert await tiers.read_from_server(key) in may
