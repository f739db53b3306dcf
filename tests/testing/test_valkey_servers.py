"""Servers and clusters for tests: what they do when asked, and that nothing of them is left."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tieredkv.config import MiB
from tieredkv.testing.valkey import (
    ReplyError,
    ValkeyCluster,
    ValkeyServer,
    key_slot,
)

_ROOT: Final = Path(__file__).parents[2]

_STARTED_BY_A_THREAD = """
import threading
from tieredkv.testing.valkey import ValkeyServer

server = ValkeyServer()
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
print(server.pid, server.directory, flush=True)
input()
"""
_FORKED = """
import os, sys
from tieredkv.testing.valkey import ValkeyServer

with ValkeyServer() as server:
    child = os.fork()
    if child == 0:
        server.stop()
        sys.exit()  # as a child does that runs what is registered for the end
    assert os.waitpid(child, 0)[1] == 0
    assert server.command("PING") == b"PONG" and server.directory.is_dir()
print("ok")
"""


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One server."""
    with ValkeyServer() as running:
        yield running


def _program(source: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", source],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_stopped_server_leaves_no_process_directory_or_thread() -> None:
    before = set(threading.enumerate())
    with ValkeyServer(unix_socket=True) as server:
        pid, directory = server.pid, server.directory
        assert server.unix_path.is_socket()
    assert not Path(f"/proc/{pid}").exists()
    assert not directory.exists()
    assert set(threading.enumerate()) <= before  # others may end at any time
    server.stop()


def test_a_server_ends_with_its_parent_and_not_with_the_thread_that_started_it() -> None:
    with _program(_STARTED_BY_A_THREAD) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        try:
            assert select.select([handle], [], [], 0)[0] == [], "it runs though its thread ended"
            parent.kill()
            assert select.select([handle], [], [], 20)[0] == [handle]
        finally:
            os.close(handle)
    assert Path(directory).exists(), "nobody was left to remove it"
    for file in Path(directory).iterdir():
        file.unlink()
    Path(directory).rmdir()


def test_a_forgotten_server_leaves_no_directory() -> None:
    with _program(_STARTED_BY_A_THREAD) as parent:
        assert parent.stdout is not None
        directory = Path(parent.stdout.readline().split()[1])
        parent.communicate("\n")
        assert parent.returncode == 0
    assert not directory.exists()


def test_a_forked_child_leaves_the_server_alone() -> None:
    with _program(_FORKED) as parent:
        assert parent.communicate()[0] == "ok\n"
    assert parent.returncode == 0


def test_a_killed_server_comes_back_at_the_same_port(server: ValkeyServer) -> None:
    url, pid = server.url, server.pid
    server.command("SET", "key", "value")
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionError):
        server.command("PING")
    server.restart()
    assert (server.url, server.command("GET", "key")) == (url, None)
    assert server.pid != pid


def test_a_restarted_server_has_loaded_what_it_had_written() -> None:
    with ValkeyServer(options={"appendonly": "yes"}) as server:
        server.command("SET", "key", bytes(8 * MiB))
        server.restart()
        assert server.command("STRLEN", "key") == 8 * MiB


def test_a_paused_server_takes_connections_and_does_not_answer(server: ValkeyServer) -> None:
    server.pause()
    assert (server.paused, server.running) == (True, False)
    with pytest.raises(TimeoutError):
        server.command("PING", timeout_s=0.05)
    server.resume()
    assert server.command("PING") == b"PONG"
    server.pause()  # it is stopped nevertheless


def test_any_password_works_and_can_be_changed() -> None:
    with ValkeyServer(password='a "q\\uote" ключ #') as server:
        assert server.command("ECHO", "yes") == b"yes"
        server.change_password("other")
        server.restart()
        assert server.command("ECHO", "yes") == b"yes"
        server.password = "wrong"
        with pytest.raises(ReplyError, match="WRONGPASS"):
            server.connect()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = ValkeyServer(options={"no-such-setting": 1})
    with pytest.raises(RuntimeError, match="no-such-setting"):
        server.start()
    with pytest.raises(RuntimeError, match="has not been started"):
        server.directory  # noqa: B018 - it raises
    server.stop()


def test_dropped_clients_are_disconnected(server: ValkeyServer) -> None:
    with server.connect() as connection:
        assert server.drop_clients() == 1
        with pytest.raises(ConnectionError):
            connection.command("PING")


def test_commands_may_be_sent_before_their_replies_are_read(server: ValkeyServer) -> None:
    with server.connect() as connection:
        connection.send("SET", "key", 7)
        connection.send("LPUSH", "key", b"x")
        connection.send("MGET", "key", "none")
        assert connection.receive() == b"OK"
        with pytest.raises(ReplyError, match="WRONGTYPE"):
            connection.receive()
        assert connection.receive() == [b"7", None]


@pytest.mark.parametrize("key", ["key", "{tag}key", "a{}b", "a{b", "{a}{b}", "x{{y}}z", "ключ", ""])
def test_slots_are_those_of_the_server(server: ValkeyServer, key: str) -> None:
    assert key_slot(key) == key_slot(key.encode()) == server.command("CLUSTER", "KEYSLOT", key)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    """A cluster that the tests of this module repair."""
    with ValkeyCluster(password="secret", node_timeout_ms=500) as running:
        yield running


def _other_primary(cluster: ValkeyCluster, node: ValkeyServer) -> ValkeyServer:
    return next(primary for primary in cluster.primaries() if primary is not node)


def test_a_cluster_serves_every_key_at_one_of_its_primaries(cluster: ValkeyCluster) -> None:
    primaries = cluster.primaries()
    assert len(primaries) == 3
    assert {cluster.primary_of(f"key-{number}") for number in range(50)} == set(primaries)
    assert cluster.primary_of("key").command("SET", "key", "value") == b"OK"
    replicas = [replica for primary in primaries for replica in cluster.replicas_of(primary)]
    assert {*primaries, *replicas} == set(cluster.nodes)
    assert len(set(cluster.urls)) == 6


def test_moved_slots_take_their_keys_along(cluster: ValkeyCluster) -> None:
    source = cluster.primary_of("moved")
    target = _other_primary(cluster, source)
    source.command("SET", "moved", "value")
    cluster.move_slots(key_slot("moved"), key_slot("moved"), target)
    assert cluster.primary_of("moved") is target
    assert target.command("GET", "moved") == b"value"


def test_a_half_moved_slot_asks_to_try_again_and_then_is_whole(cluster: ValkeyCluster) -> None:
    keys = ["{half}1", "{half}2"]
    source = cluster.primary_of("{half}")
    target = _other_primary(cluster, source)
    for key in keys:
        source.command("SET", key, key)
    with cluster.half_moved_slot(key_slot("{half}"), target, keys[:1]):
        with pytest.raises(ReplyError, match="TRYAGAIN"):
            source.command("MGET", *keys)
        with pytest.raises(ReplyError, match="ASK"):
            source.command("GET", keys[0])
    assert target.command("MGET", *keys) == [b"{half}1", b"{half}2"]


def test_a_failed_primary_is_replaced_and_repaired(cluster: ValkeyCluster) -> None:
    failed = cluster.primary_of("key")
    (replica,) = cluster.replicas_of(failed)
    paused = _other_primary(cluster, failed)
    failed.kill()
    cluster.wait_for(lambda: cluster.primary_of("key") is replica)
    paused.pause()
    cluster.repair()
    assert all(node.running for node in cluster.nodes)
    assert sum(len(cluster.replicas_of(node)) for node in cluster.primaries()) == 3
    assert failed in cluster.replicas_of(replica)
