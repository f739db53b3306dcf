"""What one server can suffer while values are written and read, and that all is well afterwards."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.calls import get, put, read
from tests.valkey_faults.calls import backend_at, opened
from tieredkv.config import KiB
from tieredkv.errors import TierError, TierFullError, TierUnavailableError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus
from tieredkv.testing.backends.requests import PATIENCE_S
from tieredkv.testing.load import under_load
from tieredkv.testing.valkey import ValkeyServer, free_port

pytestmark = pytest.mark.anyio


async def test_a_killed_server_that_starts_again(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        server.kill()
        await load.failing()
        server.restart()
        await load.recovered()
    assert load.error_types == {TierUnavailableError}


async def test_a_server_that_stands_still_for_a_while(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        server.pause()
        await load.failing()
        server.resume()
        await load.recovered()
    assert load.error_types == {TierUnavailableError}


async def test_connections_that_are_cut_again_and_again(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        for _ in range(5):
            server.drop_clients()
            await load.recovered()
    assert load.error_types <= {TierUnavailableError}


async def test_commands_that_are_held_back(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        server.command("CLIENT", "PAUSE", 60_000, "WRITE")
        await load.failing()
        server.command("CLIENT", "UNPAUSE")
        await load.recovered()
    assert load.error_types == {TierUnavailableError}


async def test_a_server_without_room_fails_writes_and_serves_reads(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        server.command("CONFIG", "SET", "maxmemory", 1)
        await load.failing()
        assert await load.read(load.names) == load.names
        assert await load.write(load.names) == []
        server.command("CONFIG", "SET", "maxmemory", 0)
        await load.recovered()
    assert {operation for operation, _ in load.failures} == {"write"}
    assert load.error_types == {TierFullError}


async def test_a_changed_password_that_is_changed_back(server: ValkeyServer) -> None:
    server.change_password("old")
    async with opened(server.url, password="old") as backend, under_load(backend) as load:
        server.change_password("new")
        server.drop_clients()
        await load.failing()
        await load.failing()
        assert await load.write(load.names) == []
        server.change_password("old")
        await load.recovered()
    assert not any("old" in text or "new" in text for _, text in load.failures)


async def test_a_primary_that_becomes_a_replica_and_is_promoted_again(server: ValkeyServer) -> None:
    async with opened(server.url) as backend, under_load(backend) as load:
        server.command("REPLICAOF", "127.0.0.1", free_port())
        await load.failing()
        assert await load.write(load.names) == []
        server.command("REPLICAOF", "NO", "ONE")
        await load.recovered()
    assert load.error_types == {TierError}, "waiting does not help"
    assert all("is a replica" in text for _, text in load.failures)


async def test_a_server_that_is_not_there_at_first(server: ValkeyServer) -> None:
    server.kill()
    backend = backend_at(server.url)
    with pytest.raises(TierUnavailableError, match="refused"):
        await backend.open()
    server.restart()
    await backend.open()
    try:
        assert (await put(backend, "name", b"value")).status is PutStatus.STORED
    finally:
        await backend.aclose()


async def test_a_late_write_is_unknown_and_lands_whole_or_not_at_all(server: ValkeyServer) -> None:
    old, new = b"o" * 300 * KiB, b"n" * 300 * KiB
    async with opened(server.url) as backend:
        assert (await put(backend, "name", old)).status is PutStatus.STORED
        server.pause()
        outcome = await put(backend, "name", new)
        assert outcome.status is PutStatus.UNKNOWN
        assert isinstance(outcome.error, TierUnavailableError)
        (deleted,) = await backend.delete_many(["name"])
        assert deleted.status is DeleteStatus.UNKNOWN
        server.resume()
        assert await get(backend, "name", len(old)) in (None, old, new)


async def test_a_name_that_holds_something_else_fails_alone(server: ValkeyServer) -> None:
    server.command("RPUSH", "list", "x")
    async with opened(server.url) as backend:
        assert (await put(backend, "name", b"value")).status is PutStatus.STORED
        assert await get(backend, "name", 5) == b"value"
        outcome = await read(backend, "list", 5)
        assert outcome.status is GetStatus.UNKNOWN
        assert isinstance(outcome.error, TierError)
        assert "WRONGTYPE" in outcome.error.reason


async def test_a_server_that_cannot_save_fails_writes_and_serves_reads(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    with ValkeyServer(options={"enable-protected-configs": "yes"}) as server:
        server.command("CONFIG", "SET", "dir", str(saved))
        server.command("CONFIG", "SET", "save", "3600 1")
        async with opened(server.url) as backend:
            assert (await put(backend, "name", b"value")).status is PutStatus.STORED
            saved.rmdir()
            server.command("BGSAVE")
            with anyio.fail_after(PATIENCE_S):
                while server.info("persistence")["rdb_last_bgsave_status"] != "err":
                    await checkpoint()
            outcome = await put(backend, "other", b"value")
            assert outcome.status is PutStatus.FAILED
            assert isinstance(outcome.error, TierError)
            assert "MISCONF" in outcome.error.reason
            assert await get(backend, "name", 5) == b"value"
            assert "MISCONF" in (await backend.status()).reason


async def test_a_server_that_still_loads_says_so() -> None:
    slowly: dict[str, int | str] = {
        "key-load-delay": 20_000,  # us
        "loading-process-events-interval-bytes": 1024,
        "rdbcompression": "no",
    }
    with ValkeyServer(options=slowly) as server:
        for number in range(100):
            server.command("SET", f"n{number}", bytes(2 * KiB))
        server.command("SAVE")
        async with opened(server.url) as backend:
            assert await get(backend, "n0", 2 * KiB) == bytes(2 * KiB)
            server.kill()
            server.launch()
            with anyio.fail_after(PATIENCE_S):
                while "still loading" not in str((await read(backend, "n0", 2 * KiB)).error):
                    pass
                while (await read(backend, "n0", 2 * KiB)).status is not GetStatus.HIT:
                    pass
