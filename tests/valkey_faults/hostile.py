"""A server that answers as it is told: with sizes, types and amounts that no server would."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BufferedIOBase
from types import TracebackType
from typing import Final, Self, TypeAlias

import anyio

Reply: TypeAlias = bytes | Callable[[], Iterable[bytes]]

OK: Final = b"+OK\r\n"
NOTHING: Final = b"_\r\n"
INFO: Final = (
    b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.0\r\nredis_mode:standalone\r\n"
    b"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nused_memory:1\r\n"
    b"# Replication\r\nrole:master\r\n"
)
HELLO: Final[dict[bytes, bytes | int]] = {
    b"server": b"valkey",
    b"version": b"8.0.0",
    b"proto": 3,
    b"mode": b"standalone",
    b"role": b"master",
}


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def endless(head: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            yield bytes(64 * 1024)

    return pieces


class HostileServer:
    """A context manager. Values that are set are kept; whatever is in `answers` is told instead.

    Attributes:
        answers: Command → reply, whatever is asked for. An empty one is none at all; after one that
            is made of pieces the connection is closed.
        values: What was set.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Reply] = {}
        self.values: dict[bytes, bytes] = {}
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                owner._connections.add(self.connection)
                with suppress(OSError, EOFError):
                    while owner._answer(_command(self.rfile), self.connection):
                        pass
                    self.connection.recv(1)
                owner._connections.discard(self.connection)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = False

        self._connections: set[socket.socket] = set()
        self._unanswered: set[socket.socket] = set()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"valkey://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    async def hung_up(self) -> None:
        """Wait until no connection is left on which a reply was held back or has no end."""
        while self._connections & self._unanswered:
            await anyio.sleep(0.001)

    def _answer(self, command: list[bytes], connection: socket.socket) -> bool:
        reply = self.answers.get(command[0].decode().upper())
        if reply is None:
            reply = self._honest(command)
        if command[0].decode().upper() in self.answers:
            self._unanswered.add(connection)
        if not callable(reply):
            connection.sendall(reply)
            return True
        for piece in reply():
            connection.sendall(piece)
        return False

    def _honest(self, command: list[bytes]) -> bytes:  # noqa: PLR0911 - one a command
        match command[0].upper(), command[1:]:
            case b"HELLO", _:
                fields = (
                    bulk(key) + (bulk(value) if isinstance(value, bytes) else b":%d\r\n" % value)
                    for key, value in HELLO.items()
                )
                return b"%%%d\r\n" % len(HELLO) + b"".join(fields)
            case b"INFO", _:
                return b"=%d\r\ntxt:%b\r\n" % (len(INFO) + 4, INFO)
            case b"CONFIG", _:
                return b"%0\r\n"
            case b"SET", [key, value, *_]:
                self.values[key] = value
                return OK
            case b"GET", [key]:
                return self._value(key)
            case b"MGET", keys:
                return b"*%d\r\n" % len(keys) + b"".join(map(self._value, keys))
            case b"STRLEN", [key]:
                return b":%d\r\n" % len(self.values.get(key, b""))
            case b"EXISTS", [key]:
                return b":%d\r\n" % (key in self.values)
            case b"UNLINK", [key]:
                return b":%d\r\n" % (self.values.pop(key, None) is not None)
            case b"SCAN", _:
                listed = b"".join(map(bulk, self.values))
                return b"*2\r\n" + bulk(b"0") + b"*%d\r\n" % len(self.values) + listed
        return OK

    def _value(self, key: bytes) -> bytes:
        value = self.values.get(key)
        return NOTHING if value is None else bulk(value)


def _command(stream: BufferedIOBase) -> list[bytes]:
    line = stream.readline()
    if not line:
        raise EOFError
    parts: list[bytes] = []
    for _ in range(int(line[1:])):
        size = int(stream.readline()[1:])
        parts.append(stream.read(size + 2)[:size])
    return parts
