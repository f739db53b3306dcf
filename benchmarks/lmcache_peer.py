"""What the Valkey backend does beside LMCache's adapters: ``--lmcache PYTHON``.

PYTHON is the interpreter of an environment with LMCache (seen to work: 0.5.6 installed without its
dependencies, a CPU build of torch 2.13, and what its imports then ask for). Its ``valkey`` adapter
(the same vendor's client as ours) and its ``resp`` adapter (a client of its own in C++, for a
server without TLS or Cluster) run there as a child process and take turns with our backend, round
by round, against one server, all with `WORKERS` workers. Each moves its own values.

LMCache checks nothing but sizes, as "size" does, so the targets are for that.

Hits in its L1 (reserve, take the bytes, release) are compared with those in ours first.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from benchmarks import lmcache_child
from benchmarks.lmcache_child import ADAPTERS
from benchmarks.peer import Load
from benchmarks.peers_memory import Hits, timed
from benchmarks.runner import Options, Pass, Report, Subject, SubjectError, paired
from benchmarks.valkey import MODES, Batch
from tieredkv import TieredStore
from tieredkv.config import KiB, MiB
from tieredkv.testing.valkey import ValkeyServer

WORKERS: Final = 8
_BASE: Final = "lmcache valkey"
_HITS_TOGETHER: Final = (1, 32, 256)

# payload bytes → values a batch, targets of look-ups, loads and stores
_BATCHES: Final[dict[int, tuple[int, dict[str, float]]]] = {
    64 * KiB: (256, {"lookup": 3.0, "load": 2.0}),
    1 * MiB: (64, {"lookup": 3.0}),
    4 * MiB: (32, {"lookup": 3.0, "load": 1.05}),
}


class Child:
    """LMCache in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version: str = self._answer()["version"]

    def run(self, adapter: str, operation: str, operations: int) -> Pass:
        """Have it do one pass."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{adapter} {operation}\n")
        self._process.stdin.flush()
        return Pass(operations, **self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SubjectError(f"LMCache ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def lmcache(python: Path, port: int, nbytes: int, count: int) -> Iterator[Child]:
    """Run LMCache while the block runs."""
    quiet = {"LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1", "LMCACHE_LOG_LEVEL": "ERROR"}
    # -P: modules of ours beside the script have names of packages that LMCache may import.
    command = [str(python), "-P", lmcache_child.__file__, *map(str, (port, WORKERS, nbytes, count))]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: of for name, of in os.environ.items() if name != "PYTHONPATH"} | quiet,
    ) as process:
        try:
            yield Child(process)
        except BaseException:
            process.kill()
            raise


def run(options: Options) -> Iterator[Report]:
    """Measure look-ups, loads and stores, batch by batch."""
    if options.lmcache is None:
        raise ValueError("lmcache=None: this needs an interpreter that has LMCache")
    for nbytes, (count, targets) in _BATCHES.items():
        size = 8 if options.quick else count
        with ValkeyServer() as server, lmcache(options.lmcache, server.port, nbytes, size) as child:
            batch = Batch(server, nbytes, size)
            try:
                if nbytes == min(_BATCHES):
                    for together in _HITS_TOGETHER:
                        yield anyio.run(_hits, options, Load(nbytes, size), child, together)
                yield from anyio.run(_compare, options, batch, child, targets)
            finally:
                batch.close()


async def _hits(options: Options, load: Load, child: Child, together: int) -> Report:
    async with TieredStore(load.l1()) as store:
        hits = await Hits(load, together).store(store)
        subjects = [
            Subject("lmcache L1", partial(child.run, "l1", str(together), len(load.keys))),
            Subject("TieredStore", partial(timed, hits)),
        ]
        result = await paired(subjects, rounds=options.rounds_or(101), warmup=2)
    title = f"LMCache {child.version}: hits in L1 of {load}, {together} at a time"
    return Report(title, result.rows(), [result.ratio("TieredStore", "lmcache L1", speed=True)])


async def _compare(
    options: Options, batch: Batch, child: Child, targets: dict[str, float]
) -> list[Report]:
    count = len(batch.names)
    backends = {mode: batch.backend(mode, num_workers=WORKERS) for mode in MODES}
    moves = {"store": batch.write, "load": batch.read, "lookup": batch.look_up}
    reports = []
    try:
        for mode, backend in backends.items():
            await backend.open()
            await batch.write(backend, mode)
        for operation, move in moves.items():
            nbytes = 0 if operation == "lookup" else batch.nbytes
            peers = [
                Subject(f"lmcache {name}", partial(child.run, name, operation, count), nbytes)
                for name in ADAPTERS
            ]
            ours = [Subject(mode, partial(move, of, mode), nbytes) for mode, of in backends.items()]
            result = await paired([*peers, *ours], rounds=options.rounds_or(31), warmup=2)
            figures = [result.ratio(mode, _BASE, speed=True) for mode in MODES]
            figures[0] = attrs.evolve(figures[0], at_least=targets.get(operation))
            figures += [result.ratio(mode, "lmcache resp", speed=True) for mode in MODES]
            title = f"LMCache {child.version}: {operation} of {batch}, {WORKERS} workers"
            panel = f"{operation}s, beside LMCache's valkey adapter and its resp adapter"
            reports.append(Report(title, result.rows(), figures, panel, str(batch)))
    finally:
        for backend in backends.values():
            await backend.aclose()
    return reports
