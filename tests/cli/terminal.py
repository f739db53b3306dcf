"""A pseudo-terminal, for commands that draw."""

from __future__ import annotations

import os
import pty
import subprocess

__all__ = ["on_a_terminal"]


def on_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command on a pseudo-terminal; return its exit status and all that it drew."""
    ours, its = pty.openpty()
    drawn = bytearray()
    with subprocess.Popen(command, env=environment, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not piece:
                break
            drawn += piece
    os.close(ours)
    return process.returncode, drawn.decode()
