"""Opening: the true cause at once, as an error that says whether waiting helps."""

from __future__ import annotations

import logging
import socket
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tieredkv.backends import ValkeyBackend
from tieredkv.errors import (
    ConfigError,
    MissingDependencyError,
    StoreClosedError,
    TierError,
    TierUnavailableError,
)
from tieredkv.testing.backends.requests import Landing, Source
from tieredkv.testing.leaks import LeakCheck
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.network]


async def fails_to_open(backend: ValkeyBackend) -> Exception:
    with pytest.raises((TierError, ConfigError, MissingDependencyError)) as caught:
        await backend.open()
    with pytest.raises(StoreClosedError):
        await backend.stat_many(["name"])
    assert backend._workers.num_clients == 0
    return caught.value


@pytest.mark.parametrize("mode", ["standalone", "cluster"])
async def test_a_refused_port_is_named_and_may_heal(mode: Any) -> None:
    error = await fails_to_open(ValkeyBackend(f"valkey://127.0.0.1:{free_port()}", mode=mode))
    assert isinstance(error, TierUnavailableError)
    assert "refused" in str(error)


async def test_an_unknown_host_is_named_and_may_heal() -> None:
    error = await fails_to_open(ValkeyBackend("valkey://no-such-host.invalid"))
    assert isinstance(error, TierUnavailableError)
    assert "lookup" in str(error)


async def test_a_missing_socket_is_named_and_may_heal() -> None:
    error = await fails_to_open(ValkeyBackend("unix:///no/such/valkey.sock"))
    assert isinstance(error, TierUnavailableError)
    assert "No such file" in str(error)


async def test_a_port_that_never_answers_may_heal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        backend = ValkeyBackend(f"valkey://127.0.0.1:{port}", connect_timeout_s=0.3)
        error = await fails_to_open(backend)
    assert isinstance(error, TierUnavailableError)
    assert "no answer in time" in str(error)


async def test_a_wrong_password_does_not_heal() -> None:
    with ValkeyServer(password="right") as server:
        for password in (None, "wrong"):
            error = await fails_to_open(ValkeyBackend(server.url, password=password))
            assert type(error) is TierError
            assert "password" in str(error)
            assert "wrong" not in str(error)
        backend = ValkeyBackend(server.url, password="right")
        await backend.open()
        await backend.aclose()


async def test_the_wrong_mode_is_told_with_the_right_one(cluster: ValkeyCluster) -> None:
    primary = next(iter(cluster.primaries()))
    error = await fails_to_open(ValkeyBackend(primary.url, name="near"))
    assert isinstance(error, ConfigError)
    assert str(error).startswith("near: mode='standalone': ")
    assert "mode='cluster'" in str(error)


async def test_a_cluster_client_at_a_lone_server_says_what_to_look_at(
    server: ValkeyServer,
) -> None:
    backend = ValkeyBackend(server.url, mode="cluster", connect_timeout_s=0.3)
    error = await fails_to_open(backend)
    assert isinstance(error, TierError)
    assert "Cluster" in str(error)


@pytest.mark.parametrize("options", [{}, {"cluster-enabled": "yes"}])
async def test_a_cluster_client_with_time_to_ask_says_that_there_is_no_cluster(
    options: dict[str, str],
) -> None:
    with ValkeyServer(options=options) as server:
        error = await fails_to_open(ValkeyBackend(server.url, mode="cluster"))
    assert type(error) is TierError
    assert "no node of a Cluster that has slots" in str(error)
    assert "leave out mode='cluster'" in str(error)


async def test_failing_to_open_leaves_no_thread_and_no_descriptor(
    anyio_backend: object, server: ValkeyServer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, ValkeyServer(password="right") as locked:
        addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{deaf.getsockname()[1]}"]
        for address in addresses:  # the vendor keeps some for the whole process
            await fails_to_open(ValkeyBackend(f"valkey://{address}", connect_timeout_s=0.3))
        threads = len([*Path("/proc/self/task").iterdir()])
        with LeakCheck():
            for address in (*addresses, f"127.0.0.1:{locked.port}"):
                backend = ValkeyBackend(f"valkey://{address}", connect_timeout_s=0.3)
                await fails_to_open(backend)
        assert len([*Path("/proc/self/task").iterdir()]) <= threads


async def test_an_absent_package_comes_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("tieredkv.clients.glide.vendor.version", absent)
    error = await fails_to_open(ValkeyBackend("valkey://host"))
    assert isinstance(error, MissingDependencyError)
    assert "pip install 'valkey-glide-sync>=2.6,<3'" in str(error)


@pytest.mark.parametrize("version", ["2.5.9", "3.0.0", "unknown"])
async def test_an_unfit_package_comes_with_the_command(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("tieredkv.clients.glide.vendor.version", lambda _: version)
    error = await fails_to_open(ValkeyBackend("valkey://host"))
    assert isinstance(error, MissingDependencyError)
    assert version in str(error)
    assert "pip install" in str(error)


async def test_the_connection_is_named_on_the_server(server: ValkeyServer) -> None:
    backend = ValkeyBackend(server.url, client_name="cache-7")
    await backend.open()
    clients = server.command("CLIENT", "LIST").decode()
    await backend.aclose()
    assert "name=cache-7" in clients
    assert "(tieredkv" in clients


async def test_a_socket_works_like_a_port() -> None:
    with ValkeyServer(unix_socket=True) as server:
        backend = ValkeyBackend(server.unix_url)
        await backend.open()
        await backend.write_many([Source("name", b"value").request()])
        await backend.aclose()
        assert server.command("GET", "name") == b"value"


async def test_a_database_is_kept_apart(server: ValkeyServer) -> None:
    backend = ValkeyBackend(f"{server.url}/3")
    await backend.open()
    await backend.write_many([Source("name", b"value").request()])
    await backend.aclose()
    assert server.command("GET", "name") is None
    assert server.info("keyspace")["db3"].startswith("keys=1,")


async def test_two_parties_that_evict_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with ValkeyServer(maxmemory=100_000_000, policy="allkeys-lfu") as server:
        backend = ValkeyBackend(server.url, key_prefix="p", capacity="1MiB", ttl_s=60)
        with caplog.at_level(logging.WARNING):
            await backend.open()
        details = (await backend.status()).details
        await backend.aclose()
    assert "two parties evict" in caplog.text
    assert len(details["advice"]) == 2  # type: ignore[arg-type]
    assert details["maxmemory_bytes"] == 100_000_000
    assert details["maxmemory_policy"] == "allkeys-lfu"
    assert str(details["server_version"]).startswith("valkey ")


async def test_a_full_server_refuses_writes_but_reads_on() -> None:
    with ValkeyServer(maxmemory=3_000_000) as server:
        backend = ValkeyBackend(server.url)
        await backend.open()
        requests = [Source(f"n{number}", bytes(100_000)).request() for number in range(60)]
        written = await backend.write_many(requests)
        full = [outcome.error for outcome in written if outcome.error is not None]
        stored = next(n for n, outcome in enumerate(written) if outcome.error is None)
        status = await backend.status()
        landing = Landing(f"n{stored}", 100_000)
        (read,) = await backend.read_many([landing.request()])
        await backend.aclose()
    assert full
    assert all("maxmemory" in str(error) for error in full)
    assert {type(error).__name__ for error in full} == {"TierFullError"}
    assert read.status == "hit"
    assert not status.is_healthy


async def test_node_memory_is_told_of_every_node(cluster: ValkeyCluster) -> None:
    backend = ValkeyBackend(cluster.url, mode="cluster")
    await backend.open()
    details = (await backend.status()).details
    await backend.aclose()
    node_memory = details["node_memory"]
    assert isinstance(node_memory, dict)
    assert len(node_memory) == 6
    assert all(memory["used_memory"] > 0 for memory in node_memory.values())
