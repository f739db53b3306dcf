"""The proxy between a client and a server: what passes, what does not, and that it ends."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tieredkv.errors import ConfigError
from tieredkv.testing.leaks import LeakCheck
from tieredkv.testing.proxy import Direction, StreamFault, StreamFaultKind, TCPProxy

pytestmark = pytest.mark.network

SENT = bytes(range(256)) * 800  # more than one piece


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while piece := self.connection.recv(65536):
            self.connection.sendall(piece)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False


@pytest.fixture
def target() -> Iterator[tuple[str, int]]:
    """Address of a server that sends back what it is sent."""
    with _Server(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(target: tuple[str, int]) -> Iterator[TCPProxy]:
    with LeakCheck(leases=False), TCPProxy(target) as running:
        yield running


def connected(proxy: TCPProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


def heard(client: socket.socket) -> bytes:
    """Return all that comes until the connection ends."""
    pieces = []
    try:
        while piece := client.recv(65536):
            pieces.append(piece)
    except ConnectionError:
        pass
    return b"".join(pieces)


def echoed(proxy: TCPProxy) -> bytes:
    """Send all, say that this was all, and return what comes back."""
    with connected(proxy) as client:
        sender = threading.Thread(target=_sent, args=(client,))
        sender.start()
        answer = heard(client)
        sender.join()
    return answer


def _sent(client: socket.socket) -> None:
    try:
        client.sendall(SENT)
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_everything_passes_and_so_does_the_end(proxy: TCPProxy) -> None:
    assert echoed(proxy) == SENT
    assert echoed(proxy) == SENT


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
@pytest.mark.parametrize("kind", ["cut", "truncate"])
def test_only_so_many_bytes_pass(
    proxy: TCPProxy, direction: Direction, kind: StreamFaultKind
) -> None:
    fault = StreamFault(direction, kind, after_bytes=100_000)
    proxy.inject(fault)
    answer = echoed(proxy)
    assert SENT.startswith(answer)
    # What the server had sent back when both ends were cut is lost.
    assert len(answer) == 100_000 or (kind == "cut" and len(answer) < 100_000)
    assert proxy.met(fault) == 1
    assert echoed(proxy) == SENT, "only one connection was to meet it"


def test_a_truncated_reply_ends_in_good_order_while_the_other_way_is_open(proxy: TCPProxy) -> None:
    proxy.inject(StreamFault("to_client", "truncate", after_bytes=3))
    with connected(proxy) as client:
        client.sendall(b"abcdef")
        assert client.recv(10) == b"abc"
        assert client.recv(10) == b""
        client.sendall(b"still open")


def test_a_server_that_has_hung_up_is_heard_to_the_end(proxy: TCPProxy) -> None:
    proxy.inject(
        StreamFault("to_server", "truncate", after_bytes=3), StreamFault("to_client", "delay")
    )
    assert echoed(proxy) == SENT[:3]


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_one_byte_is_changed(proxy: TCPProxy, direction: Direction) -> None:
    proxy.inject(
        StreamFault(direction, "corrupt", after_bytes=70_000),
        StreamFault(direction, "corrupt", after_bytes=70_001, mask=1),
    )
    changed = bytearray(SENT)
    changed[70_000] ^= 0xFF
    changed[70_001] ^= 1
    assert echoed(proxy) == changed


def test_what_stalls_goes_on_when_all_is_calm(proxy: TCPProxy) -> None:
    proxy.inject(fault := StreamFault("to_client", "stall", after_bytes=2))
    with connected(proxy) as client:
        client.sendall(b"abcdef")
        assert client.recv(10) == b"ab"
        assert proxy.met(fault) == 1
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(10)
        client.settimeout(30)
        proxy.calm()
        assert client.recv(10) == b"cdef"


def test_what_is_delayed_comes(proxy: TCPProxy) -> None:
    proxy.inject(fault := StreamFault("to_client", "delay", delay_s=0.01))
    assert echoed(proxy) == SENT
    assert proxy.met(fault) == 1


def test_bytes_count_from_the_injection_and_from_a_connections_start(proxy: TCPProxy) -> None:
    with connected(proxy) as before:
        before.sendall(b"abc")
        assert before.recv(3) == b"abc"
        proxy.inject(StreamFault("to_client", "corrupt", after_bytes=1, times=None, mask=0x20))
        before.sendall(b"abc")
        assert before.makefile("rb").read(3) == b"aBc"
        before.sendall(b"abc")
        assert before.recv(3) == b"abc", "each connection meets it once"
    with connected(proxy) as later:
        later.sendall(b"abc")
        assert later.makefile("rb").read(3) == b"aBc"


def test_every_connection_can_be_cut(proxy: TCPProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"abc")
        assert client.recv(3) == b"abc"
        assert proxy.num_connections == 1
        proxy.cut()
        assert heard(client) == b""
    assert echoed(proxy) == SENT


def test_without_a_server_a_client_finds_the_connection_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = unused.getsockname()
    with LeakCheck(leases=False), TCPProxy(nobody) as proxy, connected(proxy) as client:
        assert heard(client) == b""


def test_leaving_it_cuts_what_stalls(target: tuple[str, int]) -> None:
    with LeakCheck(leases=False), TCPProxy(target) as proxy:
        proxy.inject(StreamFault("to_client", "stall"))
        client = connected(proxy)
        client.sendall(b"abc")
        client.close()


def test_a_wrong_fault_is_refused() -> None:
    with pytest.raises(ConfigError, match="direction='up' must be one of"):
        StreamFault("up", "cut")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mask=0"):
        StreamFault("to_client", "corrupt", mask=0)
