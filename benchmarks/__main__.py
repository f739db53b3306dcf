"""``python -m benchmarks [NAME ...] [--quick] [--json FILE] [--rounds N]``: measure.

``replay`` takes ``--trace FILE``, too, and ``--recompute-ms``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs

from benchmarks.runner import Options
from tieredkv.cli.trace import TraceError

_KNOWN: Final = (
    "imports",
    "l1",
    "store",
    "outage",
    "disk",
    "valkey",
    "hfbucket",
    "peers_memory",
    "peers_disk",
    "peers_valkey",
    "replay",
)
_FOUND: Final = [name for name in _KNOWN if find_spec(f"benchmarks.{name}")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks named, or all of them; print tables as they are ready."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_FOUND)}; or all")
    parser.add_argument("--quick", action="store_true", help="whether they work, not how fast")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of each one's own number")
    parser.add_argument(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="requests for replay, once or more (else: a chat that it makes up)",
    )
    parser.add_argument(
        "--recompute-ms", type=float, metavar="MS", help="what a chunk costs that replay lacks"
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(_FOUND):
        parser.error(f"no benchmark is called {unknown.pop()!r}: choose from {', '.join(_FOUND)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error(f"--rounds={given.rounds} must be at least 1")
    if given.recompute_ms is not None and not 0 < given.recompute_ms < math.inf:
        parser.error(
            f"--recompute-ms={given.recompute_ms} must be a number of milliseconds above 0"
        )
    options = Options(
        quick=given.quick,
        rounds=given.rounds,
        traces=tuple(given.trace),
        recompute_ms=given.recompute_ms,
    )
    results: dict[str, list[dict[str, object]]] = {}
    for name in given.names or _FOUND:
        reports = results[name] = []
        try:
            for report in importlib.import_module(f"benchmarks.{name}").run(options):
                print(report.table(), flush=True)
                reports.append(attrs.asdict(report))
        except TraceError as error:
            parser.error(f"--trace: {error}")
    if given.json:
        given.json.write_text(json.dumps({"machine": _machine(), "benchmarks": results}, indent=1))


def _machine() -> dict[str, object]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "packages": {of.name: of.version for of in distributions()},
    }


if __name__ == "__main__":
    main()
