"""``python -m benchmarks [NAME ...]``: measure, print tables, and draw the page of the docs.

Without NAME all are run, ``lmcache_peer`` only with an interpreter for it. Results are written
after each benchmark, so one that fails costs no other's.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.page import Page, read_reasons
from benchmarks.results import Benchmark, Stopwatch, dumps
from benchmarks.runner import Options
from tieredkv.cli.trace import TraceError

_KNOWN: Final = (
    *("imports", "l1", "store", "outage", "disk", "valkey", "hfbucket", "simulate", "replay"),
    *("peers_memory", "peers_disk", "peers_valkey", "lmcache_peer"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks named, or all of them; print tables as they are ready."""
    parser = _parser()
    given = parser.parse_args(arguments)
    _check(parser, given)
    options = Options(
        quick=given.quick,
        rounds=given.rounds,
        traces=tuple(given.trace),
        chunks=given.chunks,
        recompute_ms=given.recompute_ms,
        lmcache=given.lmcache,
    )
    page = Page()
    results: dict[str, Benchmark] = {}
    for name in given.names or _KNOWN:
        if name == "lmcache_peer" and given.lmcache is None:
            continue
        try:
            results[name] = _run(name, options)
        except TraceError as error:
            parser.error(f"--trace: {error}")
        if given.json:
            given.json.write_text(dumps(results))
        if given.page:
            page.update({name: results[name]})
    if given.page:
        page.draw(read_reasons())


def _run(name: str, options: Options) -> Benchmark:
    module = importlib.import_module(f"benchmarks.{name}")
    stopwatch = Stopwatch()
    reports = []
    for report in module.run(options):
        print(report.table(), flush=True)
        reports.append(report)
    command = f"python -m benchmarks {name}{_arguments(name, options)}"
    return Benchmark(inspect.getdoc(module) or "", stopwatch.stop(command), tuple(reports))


def _arguments(name: str, options: Options) -> str:
    """Return what a command needs to run the same again, on whatever machine."""
    return (
        " --quick" * options.quick
        + f" --rounds {options.rounds}" * (options.rounds is not None)
        + "".join(f" --trace {trace.name}" for trace in options.traces)
        * (name in {"simulate", "replay"})
        + f" --chunks {options.chunks}" * (name == "replay" and options.chunks is not None)
        + f" --recompute-ms {options.recompute_ms}"
        * (name == "replay" and options.recompute_ms is not None)
        + " --lmcache PYTHON" * (name == "lmcache_peer")
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_KNOWN)}")
    parser.add_argument("--quick", action="store_true", help="whether they work, not how fast")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of each one's own number")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all results")
    parser.add_argument(
        "--page",
        action="store_true",
        help="take the results into docs/benchmarks/ and draw docs/benchmarks.md",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="requests for simulate and replay, once or more (else: a chat that is made up)",
    )
    parser.add_argument(
        "--chunks",
        type=int,
        metavar="N",
        help="how many distinct ones of a trace replay asks for at most (else: 1500)",
    )
    parser.add_argument(
        "--recompute-ms", type=float, metavar="MS", help="what a chunk costs that replay lacks"
    )
    parser.add_argument(
        "--lmcache", type=Path, metavar="PYTHON", help="interpreter that has what lmcache_peer asks"
    )
    return parser


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    if unknown := set(given.names) - set(_KNOWN):
        parser.error(f"no benchmark is called {unknown.pop()!r}: choose from {', '.join(_KNOWN)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error(f"--rounds={given.rounds} must be at least 1")
    if given.chunks is not None and given.chunks < 1:
        parser.error(f"--chunks={given.chunks} must be at least 1")
    if given.recompute_ms is not None and not 0 < given.recompute_ms < math.inf:
        parser.error(
            f"--recompute-ms={given.recompute_ms} must be a number of milliseconds above 0"
        )
    if given.page and given.quick:
        parser.error("--page shows measurements, --quick takes none: leave one of them out")
    if "lmcache_peer" in given.names and given.lmcache is None:
        parser.error("lmcache_peer needs --lmcache PYTHON, an interpreter that has LMCache")


if __name__ == "__main__":
    main()
