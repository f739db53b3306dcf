"""A local Hub in a child process, driven by lines of JSON over its standard streams.

Protocol: the parent's first line has the settings, the child's first line the endpoint. Then each
line of the parent is a command with its arguments, each line of the child its result or its error.
The end of the parent's lines ends the child, so it never outlives the parent.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Final, cast

import attrs

from tieredkv.testing.hub.server import LocalHub, ThreadHub
from tieredkv.testing.hub.settings import HubSettings

__all__ = ["CONTROL_FLAG", "ProcessHub", "serve_commands"]

CONTROL_FLAG: Final = "--control"
_STOP_TIMEOUT_S: Final = 10.0
_ERRORS: Final = {kind.__name__: kind for kind in (ValueError, LookupError)}
# The child finds this package though it is not installed, as the parent did.
_IMPORT_ROOT: Final = Path(__file__).parents[3]


class ProcessHub(LocalHub):
    """A local Hub in a child process.

    Args:
        settings: How to start it.

    Raises:
        RuntimeError: The child has not come up; its standard error says why.
    """

    def __init__(self, settings: HubSettings) -> None:
        self._lock = threading.Lock()
        self._child = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", "tieredkv.testing.hub", CONTROL_FLAG],
            cwd=_IMPORT_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, who stops it
        )
        plain = attrs.asdict(settings) | {"root": str(settings.root)}
        try:
            endpoint = self._exchange(plain)["endpoint"]
        except BaseException:
            self.kill()
            raise
        super().__init__(settings, endpoint)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def call(self, command: str, **arguments: object) -> object:
        """See `LocalHub.call`; one call at a time, a waiting one holds up the others."""
        answer = self._exchange({"command": command, "arguments": arguments})
        if "error" in answer:
            raise _ERRORS[answer["error"]](answer["message"])
        result: object = answer["result"]
        return result

    def _end(self) -> None:
        self._close_streams()
        try:
            self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the child at once, as a crash would; `stop` is still due."""
        self._child.kill()
        self._child.wait()
        self._close_streams()

    def _exchange(self, document: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            commands, answers = self._streams()
            try:
                commands.write(json.dumps(document).encode() + b"\n")
                commands.flush()
                line = answers.readline()
            except (OSError, ValueError):  # a broken pipe, or one that `stop` has closed
                line = b""
        if not line:
            raise RuntimeError("the local Hub's process does not run any more")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        return cast("IO[bytes]", self._child.stdin), cast("IO[bytes]", self._child.stdout)

    def _close_streams(self) -> None:
        for stream in self._streams():
            with contextlib.suppress(OSError):  # a command that the child has not taken
                stream.close()


def serve_commands(commands: IO[bytes], answers: IO[bytes]) -> None:
    """Be the child: start as the first line says, then obey until the lines end."""
    plain = json.loads(commands.readline())
    settings = HubSettings(**plain | {"root": Path(plain["root"])})
    with ThreadHub(settings) as hub:
        _write(answers, {"endpoint": hub.endpoint})
        for line in commands:
            asked = json.loads(line)
            _write(answers, _obey(hub, asked["command"], asked["arguments"]))


def _obey(hub: ThreadHub, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": hub.call(command, **arguments)}
    except (ValueError, LookupError) as error:
        kind = next(name for name, known in _ERRORS.items() if isinstance(error, known))
        return {"error": kind, "message": str(error)}


def _write(stream: IO[bytes], document: dict[str, Any]) -> None:
    stream.write(json.dumps(document).encode() + b"\n")
    stream.flush()
