"""What of the vendor's inside is relied on. If one of these fails, look into clients/glide."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import weakref

import glide_sync
import pytest
from glide_sync.glide_client import BaseClient

from tieredkv.clients.glide import ClientSettings, Kind, Node, OwnedClient
from tieredkv.clients.glide.failures import translate
from tieredkv.testing.valkey import ValkeyServer

pytestmark = pytest.mark.network


def settings_of(server: ValkeyServer) -> ClientSettings:
    return ClientSettings(
        nodes=(Node("127.0.0.1", server.port),),
        cluster=False,
        user=None,
        password=None,
        db=None,
        tls=None,
        request_timeout_ms=5000,
        connect_timeout_ms=5000,
        prefer_replica=False,
        client_name=None,
        client_tag="tieredkv",
    )


def test_creating_is_what_we_do_and_the_hook_that_we_leave_out() -> None:
    source = inspect.getsource(BaseClient.create)
    body = [line.strip() for line in source.split("self = cls(config)")[1].splitlines()]
    assert [line for line in body if line] == [
        "self._config = config",
        "self._is_closed = False",
        "os.register_at_fork(after_in_child=self._create_core_client)",
        "self._create_core_client()",
        "return self",
    ]
    assert "_is_closed: bool = False" in inspect.getsource(BaseClient.__init__)


def test_a_closed_client_is_collected(server: ValkeyServer) -> None:
    client = OwnedClient(settings_of(server))
    kept = weakref.ref(client._client)
    client.close()
    del client
    gc.collect()
    assert kept() is None


def test_the_vendors_texts_are_known() -> None:
    known = [
        ("OOM: command not allowed when used memory > 'maxmemory'.", Kind.FULL),
        ("WRONGTYPE: Operation against a key holding the wrong kind of value", Kind.WRONG_TYPE),
        ("An error was signalled by the server: - ReadOnly: You can't write", Kind.READONLY),
        ("An error was signalled by the server: - PermissionDenied: User ro has no", Kind.DENIED),
        ("An error was signalled by the server: - Moved: 12182 127.0.0.1:7", Kind.MOVED),
        ("An error was signalled by the server: - CrossSlot: Keys in request", Kind.CROSS_SLOT),
        ("An error was signalled by the server: - ClusterDown: The cluster is", Kind.CLUSTER_DOWN),
        ("An error was signalled by the server: - BusyLoadingError: Valkey is", Kind.LOADING),
        ("An error was signalled by the server: - TryAgain: Multiple keys", Kind.TRY_AGAIN),
        ("NOREPLICAS: Not enough good replicas to write.", Kind.NO_REPLICAS),
        ("something new", Kind.REFUSED),
    ]
    for text, kind in known:
        assert translate(glide_sync.RequestError(text)).kind is kind, text


def test_the_vendors_words_are_one_line() -> None:
    error = glide_sync.ConnectionError("Connection refused (os error 111)\n")
    assert str(translate(error)) == "Connection refused (os error 111)"


def test_a_value_that_is_too_large_tells_its_size(server: ValkeyServer) -> None:
    server.command("SET", "large", bytes(500))
    client = OwnedClient(settings_of(server))
    try:
        with pytest.raises(Exception, match="exceeds buffer capacity") as caught:
            client.get_into(b"large", memoryview(bytearray(10)))
    finally:
        client.close()
    assert caught.value.stored_bytes == 500  # type: ignore[attr-defined]


_FORK = """
import os, sys, warnings
import anyio
from tieredkv.backends import ValkeyBackend
from tieredkv.testing.backends.requests import Landing, Source

url = sys.argv[1]

async def use(name):
    backend = ValkeyBackend(url)
    await backend.open()
    await backend.write_many([Source(name, b"value").request()])
    return backend

async def child():
    backend = await use("child")
    landing = Landing("parent", 5)
    (read,) = await backend.read_many([landing.request()])
    await backend.aclose()
    os._exit(0 if read.status == "hit" and landing.value == b"value" else 3)

async def parent():
    backend = await use("parent")
    if os.fork() == 0:
        run_child()
        os._exit(4)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0, status
    landing = Landing("child", 5)
    (read,) = await backend.read_many([landing.request()])
    assert read.status == "hit"
    await backend.aclose()

def run_child():
    import threading
    # A child of fork has the parent's running loop in this thread: use another one.
    thread = threading.Thread(target=lambda: anyio.run(child))
    thread.start()
    thread.join()

anyio.run(parent)
print("done")
"""


def test_a_forked_child_connects_for_itself(server: ValkeyServer) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _FORK, server.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.stdout == "done\n", finished.stderr


@pytest.mark.parametrize(
    ("by_host", "level"), [("", "ERROR"), ("glide_sync.Logger.init(LogLevel.INFO)", "INFO")]
)
def test_the_vendors_log_is_for_errors_unless_the_host_has_set_it(
    server: ValkeyServer, by_host: str, level: str
) -> None:
    script = f"""if True:
        import glide_sync
        from glide_sync import LogLevel
        from tieredkv.backends import ValkeyBackend
        {by_host}
        backend = ValkeyBackend({server.url!r})
        backend._disconnect(backend._connect())
        assert glide_sync.Logger.logger_level is LogLevel.{level}, glide_sync.Logger.logger_level
    """
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)
