"""What this process counts of a server, where the capacity is its to keep."""

from __future__ import annotations

import anyio
import pytest

from tieredkv.backends import ValkeyBackend
from tieredkv.results import DeleteStatus, GetStatus, PutStatus
from tieredkv.testing.backends.requests import Landing, Source
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.anyio, pytest.mark.network]


async def counted(backend: ValkeyBackend) -> tuple[object, object]:
    details = (await backend.status()).details
    return details["objects"], details["current_size_bytes"]


async def test_a_value_counts_with_its_latest_size(server: ValkeyServer) -> None:
    backend = ValkeyBackend(server.url, key_prefix="p", capacity=10_000)
    await backend.open()
    for nbytes in (1000, 1000, 400, 700):
        await backend.write_many([Source("name", bytes(nbytes)).request()])
        assert await counted(backend) == (1, nbytes)
    await backend.aclose()


async def test_what_the_server_has_dropped_counts_until_that_is_noticed(
    server: ValkeyServer,
) -> None:
    backend = ValkeyBackend(server.url, key_prefix="p", capacity=10_000)
    await backend.open()
    await backend.write_many([Source(name, bytes(1000)).request() for name in "ab"])
    server.command("DEL", "p@a", "p@b")
    assert await counted(backend) == (2, 2000)
    (deleted,) = await backend.delete_many(["a"])
    assert deleted.status is DeleteStatus.ABSENT
    assert await counted(backend) == (1, 1000)
    (read,) = await backend.read_many([Landing("b", 1000).request()])
    assert read.status is GetStatus.MISS
    assert await counted(backend) == (0, 0)
    await backend.aclose()


@pytest.mark.parametrize("nbytes", [1000, 300_000])  # in one group, and each in a worker of its own
async def test_values_that_are_written_together_keep_to_the_capacity(
    server: ValkeyServer, nbytes: int
) -> None:
    backend = ValkeyBackend(server.url, key_prefix="p", capacity=3 * nbytes + nbytes // 2)
    await backend.open()
    outcomes = await backend.write_many(
        [Source(f"{number}", bytes(nbytes)).request() for number in range(8)]
    )
    assert {outcome.status for outcome in outcomes} == {PutStatus.STORED}
    assert await counted(backend) == (3, 3 * nbytes)
    assert server.command("DBSIZE") == 3
    await backend.aclose()


async def test_a_group_without_an_answer_counts() -> None:
    with ValkeyServer() as server:
        backend = ValkeyBackend(
            server.url, key_prefix="p", capacity=10_000, request_timeout_s=0.3, num_workers=1
        )
        await backend.open()
        while backend._detached.pending:  # it counts what is there
            await anyio.sleep(0.001)
        server.pause()
        outcomes = await backend.write_many([Source(name, bytes(1000)).request() for name in "ab"])
        server.resume()
        assert {outcome.status for outcome in outcomes} == {PutStatus.UNKNOWN}
        assert await counted(backend) == (2, 2000)
        await backend.aclose()


async def test_what_cannot_be_evicted_counts_and_keeps_others_out(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.command("ACL", "SETUSER", "writer", "on", ">pw", "~*", "+@all", "-unlink")
    backend = ValkeyBackend(server.url, user="writer", password="pw", key_prefix="p", capacity=3500)
    await backend.open()
    for name in "abc":
        await backend.write_many([Source(name, bytes(1000)).request()])
    for names in ("d", "de"):
        for outcome in await backend.write_many(
            [Source(name, bytes(1000)).request() for name in names]
        ):
            assert outcome.status is PutStatus.FAILED
            assert "grant +get" in str(outcome.error)
        assert await counted(backend) == (3, 3000)
    await backend.aclose()
    backend = ValkeyBackend(server.url, user="writer", password="pw", key_prefix="p", capacity=2500)
    await backend.open()
    with anyio.fail_after(60):
        while "what exceeds the capacity stays" not in caplog.text:
            await anyio.sleep(0.001)
    assert await counted(backend) == (3, 3000)
    server.command("ACL", "SETUSER", "writer", "+unlink")
    (outcome,) = await backend.write_many([Source("d", bytes(1000)).request()])
    await backend.aclose()
    server.command("ACL", "DELUSER", "writer")
    assert outcome.status is PutStatus.STORED
    assert server.command("DBSIZE") == 2


async def test_usage_is_a_share_of_the_capacity_if_there_is_one(server: ValkeyServer) -> None:
    for capacity, share in [(10_000, 0.1), (None, -1.0)]:
        backend = ValkeyBackend(server.url, key_prefix="p", capacity=capacity)
        await backend.open()
        await backend.write_many([Source("name", bytes(1000)).request()])
        details = (await backend.status()).details
        await backend.aclose()
        assert (details["max_capacity_bytes"], details["usage_fraction"]) == (capacity or 0, share)


async def test_a_server_that_does_not_answer_has_no_memory_to_tell_of() -> None:
    with ValkeyServer() as server:
        backend = ValkeyBackend(server.url, request_timeout_s=0.3)
        await backend.open()
        server.pause()
        with anyio.fail_after(10):
            status = await backend.status()
        server.resume()
        await backend.aclose()
    assert not status.is_healthy
    assert "used_memory_bytes" not in status.details
    assert status.details["addresses"] == [f"127.0.0.1:{server.port}"]
