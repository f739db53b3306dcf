"""A server's process, which never outlives the process that started it.

The kernel ends it (``PR_SET_PDEATHSIG``) when the *thread* that forked it ends. So each server has
a thread of its own, which forks it and then waits for its end. A parent that dies between the fork
and the request for that signal would be missed; hence the check of the parent's id right before
the server's program begins.

Source: prctl(2), setpriv(1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["ServerProcess"]

_STILL_OURS: Final = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'


class ServerProcess:
    """One run of a server's program, from now on.

    In a forked child of this process its methods do nothing: the server is the parent's.

    Args:
        command: Program and arguments.
        log: File that takes what it prints.
        environment: Variables besides those of this process.

    Raises:
        OSError: The program cannot be run.
        RuntimeError: ``setpriv`` of util-linux is not there.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise RuntimeError("test servers need setpriv; install util-linux")
        self._parent = os.getpid()
        self._command = [
            *(setpriv, "--pdeathsig", "KILL"),
            *("/bin/sh", "-c", _STILL_OURS, "sh", str(self._parent)),
            *command,
        ]
        self._log = log
        self._environment = dict(os.environ) | dict(environment or {})
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(
            target=self._keep, name=f"keeper of {Path(command[0]).name}", daemon=True
        )
        self._keeper.start()
        self._started.wait()
        if self._failure is not None:
            self._keeper.join()
            raise self._failure

    def _keep(self) -> None:
        try:
            with self._log.open("ab") as log:
                # No preexec_fn: that would run what others have registered for a fork.
                self._child = subprocess.Popen(  # noqa: S603 (the caller's program)
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for the tests, which then stop it
                )
        except OSError as error:
            self._failure = error
            return
        finally:
            self._started.set()
        self._child.wait()

    @property
    def pid(self) -> int:
        """Process id; `setpriv` and the shell have replaced themselves by the server."""
        assert self._child is not None
        return self._child.pid

    @property
    def owned(self) -> bool:
        """Whether this process has started it, not one that it was forked from."""
        return os.getpid() == self._parent

    @property
    def running(self) -> bool:
        """Whether it has not ended (a paused one has not)."""
        return self.owned and self._keeper.is_alive()

    def kill(self) -> None:
        """End it at once, also when paused, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        if self.owned:
            self._keeper.join()

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP); returns when it stands."""
        self._signal(signal.SIGSTOP)
        while self.running and self._state() not in "Tt":
            self._keeper.join(0.001)

    def resume(self) -> None:
        """Let a paused one go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.owned and self._child is not None:
            self._child.send_signal(number)  # does nothing to one that has been waited for

    def _state(self) -> str:
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        except OSError:  # it has ended
            return "T"
        return status.rpartition(")")[2].split()[0]
