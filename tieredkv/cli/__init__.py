"""The command line, as `tieredkv` and as `python -m tieredkv`; it needs the extra ``cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = ("click", "rich")
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: Words of the command line; default those of this process.

    Returns:
        0: done. 1: it failed, or found wrong bytes. 2: a usage mistake, or a missing package.
        128 + n: ended by signal n (130: Ctrl-C).
    """
    try:
        from tieredkv.cli.commands import run  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        sys.stderr.write(
            f"tieredkv: the command line needs {package}: pip install 'tieredkv[cli]'\n"
        )
        return 2
    except KeyboardInterrupt:  # it takes some tenths of a second
        return _INTERRUPTED
    return run(arguments)
