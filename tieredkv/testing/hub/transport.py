"""HTTP/1.1 on a loopback port, one thread a connection."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import Final, cast

from tieredkv.config import KiB
from tieredkv.testing.hub.application import Application, Delivery
from tieredkv.testing.hub.exchange import Request, Response

__all__ = ["LOOPBACK", "Listener"]

LOOPBACK: Final = "127.0.0.1"
_POLL_S: Final = 0.02


class Listener(socketserver.TCPServer):
    """Accepts connections for an `Application` and ends with all its threads.

    The port is bound from the start; `serve` begins to answer.

    Attributes:
        endpoint: Address of the Hub.
    """

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.endpoint: str = f"http://{LOOPBACK}:{self.server_address[1]}"
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._accepting: threading.Thread | None = None
        self._application: Application | None = None

    @property
    def application(self) -> Application:
        """What answers."""
        return cast("Application", self._application)

    def serve(self, application: Application) -> None:
        """Begin to answer, in threads."""
        self._application = application
        self._accepting = threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name="local hub", daemon=True
        )
        self._accepting.start()

    def close(self) -> None:
        """Stop to accept, cut every connection, and wait for all threads."""
        if self._accepting is not None:
            self.shutdown()
            self._accepting.join()
        if self._application is not None:
            self._application.faults.close()
        with self._lock:
            connections = dict(self._open)
        for connection in connections:
            _cut(connection)
        for thread in connections.values():
            thread.join()
        self.server_close()
        if self._application is not None:
            self._application.close()

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Serve a connection in a thread of its own, which `close` can find."""
        connection = cast("socket.socket", request)
        thread = threading.Thread(
            target=self._converse, args=(connection, client_address), name="local hub", daemon=True
        )
        with self._lock:
            self._open[connection] = thread
        thread.start()

    def _converse(self, connection: socket.socket, client_address: tuple[str, int]) -> None:
        try:
            # A client that goes away in the middle is none of our business.
            with contextlib.suppress(ConnectionError):
                self.finish_request(connection, client_address)
        finally:
            self.shutdown_request(connection)
            with self._lock:
                del self._open[connection]


class _Handler(BaseHTTPRequestHandler):
    """Reads requests of one connection and sends answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or small answers wait for delayed acknowledgements
    wbufsize = 64 * KiB  # header and small bodies leave in one segment

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (name of the base)
        """The request log is elsewhere."""

    def _exchange(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(
            method=self.command,
            path=path,
            query=query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._read_body(),
        )
        self._deliver(cast("Listener", self.server).application.exchange(request))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _exchange  # noqa: N815 (names of the base)

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self._read(int(self.headers.get("content-length") or 0))
        pieces = []
        while size := int(self._read_line().partition(b";")[0], 16):
            pieces.append(self._read(size))
            self._read_line()
        while self._read_line():
            pass  # trailers
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        """Read exactly `size` bytes: half a request is none."""
        data = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionResetError
        return data

    def _read_line(self) -> bytes:
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError
        return line.strip()

    def _deliver(self, delivery: Delivery) -> None:
        if delivery.drop:
            self._hang_up()
            return
        response = delivery.response
        size = response.span.length if response.span else len(response.body)
        self.send_response_only(response.status)
        extent = {"Connection": "close"} if delivery.repeat else {"Content-Length": str(size)}
        for name, value in (extent | dict(response.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if delivery.repeat:
            self._send_for_ever(response)
            return
        limit = delivery.truncate_bytes
        if self.command != "HEAD":
            self._send_body(response, size if limit is None else min(limit, size))
        self.wfile.flush()
        if limit is not None and limit < size:
            self._hang_up()

    def _send_body(self, response: Response, length: int) -> None:
        if response.span is None:
            self.wfile.write(response.body[:length])
        elif length:
            self.wfile.flush()
            with response.span.path.open("rb") as file:
                self.connection.sendfile(file, response.span.offset, length)

    def _send_for_ever(self, response: Response) -> None:
        body = response.span.read() if response.span else response.body
        self.close_connection = True
        with contextlib.suppress(OSError):  # until the client, or `close`, hangs up
            while body:
                self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        _cut(self.connection)


def _cut(connection: socket.socket) -> None:
    # It may have ended by itself.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
