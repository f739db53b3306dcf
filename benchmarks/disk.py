"""What the disk backend costs beside bare loops of system calls, with as many threads.

All files are in the page cache. A bare loop opens a file, moves its bytes with one ``preadv`` or
``pwrite``, and closes it; its writes make new files in one directory, under their final names. The
backend's writes are renamed into place, too, and that stays part of the ratio: it is the price of
values that appear whole. How much of it that is, a bare loop that renames says; two bare loops of
reads, which differ in nothing but their files, say how far the machine repeats itself. What goes in
is ready before the clock starts on both sides: paths and views here, requests there.
``python -m benchmarks.disk [DIRECTORY]`` measures in that directory; without one in memory, where
the kernel does not slow writers down to a disk's pace.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs

from benchmarks.runner import Figure, Options, Pass, Report, Subject, paired, rss_bytes, run_child
from benchmarks.values import Values
from tieredkv import ObjectKey
from tieredkv.backends import DiskBackend
from tieredkv.backends.base import WriteRequest
from tieredkv.backends.disk.index import Index
from tieredkv.backends.disk.names import path_of, place_of
from tieredkv.config import KiB, MiB
from tieredkv.results import GetStatus, PutStatus

WORKERS: Final = 4

# payload bytes → values a batch; targets in "size" and "checksum", for reads and for writes
_BATCHES: Final = {64 * KiB: 256, 4 * MiB: 32, 10 * MiB: 16}
_READ_TARGETS: Final = {64 * KiB: (0.7, 0.45), 4 * MiB: (0.95, 0.68), 10 * MiB: (0.95, 0.68)}
_WRITE_TARGETS: Final = {64 * KiB: (0.7, 0.45), 4 * MiB: (0.95, 0.85), 10 * MiB: (0.95, 0.85)}
_MODES: Final = ("size", "checksum")

_IN_MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None


def run(options: Options, directory: str | None = _IN_MEMORY) -> Iterator[Report]:
    """Measure all of it, on asyncio."""
    for nbytes, count in _BATCHES.items():
        with tempfile.TemporaryDirectory(dir=directory) as root:
            batch = Batch(Path(root), nbytes, 8 if options.quick else count)
            yield anyio.run(reads, options, batch)
            yield anyio.run(writes, options, batch)
    with tempfile.TemporaryDirectory(dir=directory) as root:
        yield anyio.run(opening, options, Path(root))
    yield bookkeeping(options)


class Batch(Values):
    """How the backend and a bare loop move values."""

    def __init__(self, root: Path, nbytes: int, count: int) -> None:
        super().__init__(nbytes, count, scatter=True)
        self.threads = ThreadPoolExecutor(WORKERS)  # that last, as a backend's do
        self.root = root
        (root / "bare").mkdir()
        self.paths = [str(root / "bare" / f"{number}") for number in range(count)]

    def backend(self, mode: str) -> DiskBackend:
        return DiskBackend(self.root / mode, capacity="1TiB", num_workers=WORKERS)

    def stored(self, mode: str) -> list[str]:
        return [str(self.root / mode / path_of(name)) for name in self.names]

    def read_bare(self, mode: str) -> Pass:
        """Read the files of the backend: where a file lies in memory shows in its speed."""
        paths = self.stored(mode)

        def read(at: int) -> None:
            descriptor = os.open(paths[at], os.O_RDONLY | os.O_CLOEXEC)
            assert os.preadv(descriptor, [self.payloads[at]], 0) == self.nbytes
            os.close(descriptor)

        return _in_threads(self.threads, read, len(paths))

    def write_bare(self, *, renamed: bool = False) -> Pass:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

        def write(at: int) -> None:
            descriptor = os.open(self.paths[at], flags, 0o600)
            assert os.pwrite(descriptor, self.payloads[at], 0) == self.nbytes
            os.close(descriptor)
            if renamed:
                os.rename(self.paths[at], whole[at])  # noqa: PTH104 - the bare call

        whole = [f"{path}-whole" for path in self.paths]
        _unlink([*self.paths, *whole])
        return _in_threads(self.threads, write, len(self.paths))

    async def read(self, backend: DiskBackend, mode: str) -> Pass:
        requests = self.reads(mode)
        began = time.perf_counter()
        outcomes = await backend.read_many(requests)
        seconds = time.perf_counter() - began
        assert all(outcome.status is GetStatus.HIT for outcome in outcomes)
        return Pass(len(outcomes), seconds)

    async def write(self, backend: DiskBackend, mode: str) -> Pass:
        _unlink(self.stored(mode))  # not by its workers: the scheduler would let them pay for it
        requests = self.writes(mode)
        began = time.perf_counter()
        outcomes = await backend.write_many(requests)
        seconds = time.perf_counter() - began
        assert all(outcome.status is PutStatus.STORED for outcome in outcomes)
        return Pass(len(outcomes), seconds)


async def reads(options: Options, batch: Batch) -> Report:
    """Measure reads of batches; a bare loop for each mode reads that mode's files."""
    subjects = [Subject(f"bare, {mode}", partial(batch.read_bare, mode)) for mode in _MODES]
    return await _compare(options, batch, "read", subjects, _READ_TARGETS[batch.nbytes])


async def writes(options: Options, batch: Batch) -> Report:
    """Measure writes of batches; what they replace is deleted between the passes."""
    renamed = Subject("bare, renamed", partial(batch.write_bare, renamed=True))
    subjects = [Subject("bare", batch.write_bare), renamed]
    return await _compare(options, batch, "write", subjects, _WRITE_TARGETS[batch.nbytes])


async def _compare(
    options: Options,
    batch: Batch,
    operation: str,
    bare: Sequence[Subject],
    targets: Sequence[float],
) -> Report:
    backends = [batch.backend(mode) for mode in _MODES]
    move = batch.read if operation == "read" else batch.write
    try:
        for backend, mode in zip(backends, _MODES, strict=True):
            await backend.open()
            await batch.write(backend, mode)
        moves = [partial(move, *of) for of in zip(backends, _MODES, strict=True)]
        subjects = [*bare, *(Subject(*of) for of in zip(_MODES, moves, strict=True))]
        subjects = [attrs.evolve(subject, nbytes=batch.nbytes) for subject in subjects]
        result = await paired(subjects, rounds=options.rounds_or(41))
    finally:
        for backend in backends:
            await backend.aclose()
    size = f"{batch.nbytes // MiB} MiB" if batch.nbytes >= MiB else f"{batch.nbytes // KiB} KiB"
    names = [subject.name for subject in bare]
    bases = names if operation == "read" else names[:1] * 2
    return Report(
        f"Disk: {operation} of {len(batch.names)} x {size}, {WORKERS} threads",
        result.rows(),
        [
            result.ratio(mode, base, at_least=target, speed=True)
            for mode, base, target in zip(_MODES, bases, targets, strict=True)
        ]
        + [result.ratio(name, names[0], speed=True) for name in names[1:]],
        panel=f"{operation}s, beside bare loops of system calls",
        label=f"{len(batch.names)} x {size}",
    )


async def opening(options: Options, root: Path) -> Report:
    """Measure how long a directory with many values takes to open."""
    count = 1_000 if options.quick else 100_000
    value = memoryview(b"value")
    names = [ObjectKey("llama", 0, number.to_bytes(32)).wire_name for number in range(count)]
    backend = DiskBackend(root, capacity="1TiB")
    await backend.open()
    for at in range(0, count, 1_000):
        batch = names[at : at + 1_000]
        await backend.write_many([WriteRequest(name, 5, lambda: value) for name in batch])
    await backend.aclose()

    async def reopen() -> Pass:
        began = time.perf_counter()
        await backend.open()
        seconds = time.perf_counter() - began
        assert (await backend.status()).details["objects"] == count
        await backend.aclose()
        return Pass(1, seconds)

    result = await paired([Subject("open", reopen)], rounds=options.rounds_or(7))
    rows = result.rows()
    figure = Figure("open, median", rows[0].median_s, "s", at_most=2)
    return Report(f"Disk: opening a directory of {count:,} values", rows, [figure])


def bookkeeping(options: Options) -> Report:
    """Measure the memory that the index takes for each value, in a fresh process."""
    count = 20_000 if options.quick else 3_000_000
    printed, _ = run_child(f"import benchmarks.disk as disk; disk.print_index_bytes({count})")
    figure = Figure("resident bytes a value", float(printed), "B")
    return Report(f"Disk: index of {count:,} values, names of 81 characters", (), [figure])


def print_index_bytes(count: int) -> None:
    index = Index()
    index.put(*place_of("warm"), 1)
    before = rss_bytes()
    for number in range(count):
        index.put(*place_of(ObjectKey("llama", 0, number.to_bytes(32)).wire_name), 64 * KiB)
    print((rss_bytes() - before) / count)


def _unlink(paths: Sequence[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _in_threads(threads: ThreadPoolExecutor, work: Callable[[int], None], count: int) -> Pass:
    left = deque(range(count))

    def run() -> None:
        while left:
            try:
                at = left.popleft()
            except IndexError:
                return
            work(at)

    began = time.perf_counter()
    running = [threads.submit(run) for _ in range(WORKERS)]
    for future in running:
        future.result()
    return Pass(count, time.perf_counter() - began)


if __name__ == "__main__":
    for report in run(Options(), *sys.argv[1:]):
        print(report.table(), flush=True)
