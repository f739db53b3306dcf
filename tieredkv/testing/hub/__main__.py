"""``python -m tieredkv.testing.hub``: a local Hub until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from tieredkv.errors import ConfigError
from tieredkv.testing import hub
from tieredkv.testing.hub.process import CONTROL_FLAG, serve_commands


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a Hub; without ``--root`` it forgets everything in the end."""
    parser = argparse.ArgumentParser(prog="python -m tieredkv.testing.hub", description=__doc__)
    parser.add_argument("--root", help="directory to keep everything in (default: a temporary one)")
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--token", help="access token of the owner (default: a random one)")
    parser.add_argument(
        "--cas", choices=("http", "local"), default="http", help="who keeps contents"
    )
    parser.add_argument(CONTROL_FLAG, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.control:
        serve_commands(sys.stdin.buffer, sys.stdout.buffer)
        return
    # Blocked in all threads, so that a signal waits for `sigwait` and interrupts nothing.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends := {signal.SIGINT, signal.SIGTERM})
    try:
        server = hub.start(options.root, cas=options.cas, port=options.port, token=options.token)
    except (ConfigError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    with server:
        sys.stdout.write(f"HF_ENDPOINT={server.endpoint}\nHF_TOKEN={server.token}\n")
        sys.stdout.flush()
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
