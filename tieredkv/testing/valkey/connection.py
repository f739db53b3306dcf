"""A plain connection to a server, which shares no code with the client under test.

Source: https://valkey.io/topics/protocol/ (version 2, which every server speaks when a client does
not ask for another).
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

__all__ = ["Argument", "RawConnection", "ReplyError"]

Argument: TypeAlias = str | bytes | bytearray | memoryview | int
"""A part of a command; text is sent as UTF-8, a number in decimal digits."""

_LINE_END: Final = b"\r\n"


class ReplyError(RuntimeError):
    """The server's reply is an error; the text is the server's."""


class RawConnection:
    """One connection: a command and its reply at a time, in the calling thread. A context manager.

    Args:
        address: Host and port, or the path of a socket.
        password: Of the default user; None: the server asks for none.
        timeout_s: Of connecting, and of each reply.

    Raises:
        OSError: Nobody listens there.
        ReplyError: The password is wrong.
    """

    def __init__(
        self,
        address: tuple[str, int] | Path,
        *,
        password: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._socket = _connected(address, timeout_s)
        self._replies = self._socket.makefile("rb")
        if password is not None:
            try:
                self.command("AUTH", password)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; twice is fine."""
        self._replies.close()
        self._socket.close()

    def command(self, *arguments: Argument) -> Any:
        """Send a command and return its reply.

        Returns:
            bytes, int, None, or a list of these; an error inside of a list stays an object.

        Raises:
            ReplyError: The reply is an error.
            OSError: The connection is lost, or the reply is late.
        """
        self.send(*arguments)
        return self.receive()

    def send(self, *arguments: Argument) -> None:
        """Send a command whose reply is for `receive`: for many at once, or for one that waits.

        Raises:
            OSError: The connection is lost.
        """
        parts = [b"*%d" % len(arguments)]
        for argument in arguments:
            if isinstance(argument, (str, int)):
                content = str(argument).encode()
            else:
                content = bytes(argument)
            parts += [b"$%d" % len(content), content]
        self._socket.sendall(_LINE_END.join([*parts, b""]))

    def receive(self) -> Any:
        """Return the next reply, as `command` does."""
        reply = self._reply()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _reply(self) -> Any:
        line = self._replies.readline()
        if not line.endswith(_LINE_END):
            raise ConnectionResetError("the server has hung up")
        kind, content = line[:1], line[1:-2]
        if kind == b"+":
            return content
        if kind == b"-":
            return ReplyError(content.decode())
        number = int(content)
        if kind == b":":
            return number
        if number < 0:  # a null
            return None
        if kind == b"*":
            return [self._reply() for _ in range(number)]
        value = self._replies.read(number + len(_LINE_END))
        if len(value) < number + len(_LINE_END):
            raise ConnectionResetError("the server has hung up in the middle of a value")
        return value[:number]


def _connected(address: tuple[str, int] | Path, timeout_s: float) -> socket.socket:
    if not isinstance(address, Path):
        return socket.create_connection(address, timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(address))
    except BaseException:
        connection.close()
        raise
    return connection
