"""Paired measurements: subjects take turns in one process, so that noise hits all of them alike.

A *subject* does the work of one *pass* whenever it is called and says how many operations that
were. A *round* is one pass of every subject, each round in another order. What counts is the ratio
of two subjects within a round: its median over the rounds is the figure, its quartiles are the
spread. Medians of different runs are never compared.

A benchmark is a module of this package with a function ``run(options)`` that yields a `Report` for
each thing it measures; its docstring tells readers of the documentation what it compares. To add
one, write the module and name it in ``__main__.py``.

A subject may be anything, also a loop over a vendor's client. What it raises loses its traceback
before it goes on: the frames would keep the client's buffers alive, and some clients crash the
garbage collector then. So it has to catch nothing itself.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import anyio
import attrs

from benchmarks.report import Figure, Report, Row

__all__ = [
    "Figure",
    "LoopLag",
    "Options",
    "Paired",
    "Pass",
    "Report",
    "Row",
    "Subject",
    "SubjectError",
    "child",
    "paired",
    "quartiles",
    "rss_bytes",
    "run_child",
]

_LAG_INTERVAL_S: Final = 0.001
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class SubjectError(Exception):
    """A subject raised; the text is its traceback, without the frames."""


@attrs.frozen
class Options:
    """What the command line asks of every benchmark.

    Attributes:
        quick: Smallest sizes and two rounds: whether it works, not how fast.
        rounds: Number of rounds, or None for each benchmark's own.
        traces: Files of requests to replay.
        chunks: Most distinct chunks of a trace that are replayed, or None for the usual number.
        recompute_ms: What it takes to compute a chunk that a replay does not find, or None if
            nobody knows.
        lmcache: Interpreter of an environment with LMCache, if there is one.
    """

    quick: bool = False
    rounds: int | None = None
    traces: tuple[Path, ...] = ()
    chunks: int | None = None
    recompute_ms: float | None = None
    lmcache: Path | None = None

    def rounds_or(self, usual: int) -> int:
        """Return how many rounds to run where `usual` is the benchmark's own number."""
        return self.rounds or (2 if self.quick else usual)


@attrs.frozen
class Pass:
    """What a pass did, where the runner cannot see it from outside.

    Attributes:
        operations: How many; all durations are divided by it.
        seconds: Duration of the pass, if not that of the call.
        cpu_s: CPU seconds, if not those of this process.
        rss_bytes: Resident memory, if not that of this process.
    """

    operations: int
    seconds: float | None = None
    cpu_s: float | None = None
    rss_bytes: int | None = None


@attrs.frozen
class Subject:
    """Something to measure.

    Attributes:
        name: How the tables call it; unique in a comparison.
        run: Does one pass and returns its operations, or a `Pass`; plain or async.
        nbytes: Bytes an operation moves, 0 if that says nothing.
    """

    name: str
    run: Callable[[], int | Pass | Awaitable[int | Pass]]
    nbytes: int = 0


@attrs.frozen
class _Sample:
    """A pass: durations are those of one operation, in seconds."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    lags: Sequence[float]
    held: Sequence[float]


class LoopLag:
    """Watches how late the running event loop gets to what is due.

    A probe is due every millisecond. Those that would have been due while the loop was busy count,
    too, each with its own delay: else one long stall would be a single sample among many short ones
    (G. Tene, "How NOT to measure latency", 2013: coordinated omission).

    What is late may have been held up by this process (something on the loop, or a thread with the
    GIL), or because the loop's thread was ready and all processors were taken. The kernel counts
    the second; without it the first is left.

    Attributes:
        lags_s: The delays.
        held_s: The same without the wait for a processor; all of it where there is no /proc.
    """

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self.held_s: list[float] = []

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._probe)
            await anyio.sleep(2 * _LAG_INTERVAL_S)
            self.lags_s.clear()
            self.held_s.clear()
            try:
                yield
            finally:
                await anyio.sleep(2 * _LAG_INTERVAL_S)  # what was late is noted
                tasks.cancel_scope.cancel()

    async def _probe(self) -> None:
        while True:
            due, waited_s = time.perf_counter() + _LAG_INTERVAL_S, _waited_for_processor_s()
            await anyio.sleep(_LAG_INTERVAL_S)
            late_s, waited_s = time.perf_counter() - due, _waited_for_processor_s() - waited_s
            self.lags_s += _delays(late_s)
            self.held_s += _delays(late_s - waited_s)


class Paired:
    """The passes of several subjects, round by round."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._subjects = subjects
        self._samples: dict[str, list[_Sample]] = {subject.name: [] for subject in subjects}

    def add(self, subject: Subject, sample: _Sample) -> None:
        """Note a pass."""
        self._samples[subject.name].append(sample)

    def ratio(
        self,
        name: str,
        base: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        speed: bool = False,
    ) -> Figure:
        """Return how many times as long (or, `speed`, as fast) as `base` a subject is."""
        pairs = zip(self._samples[name], self._samples[base], strict=True)
        ratios = [(b.seconds / a.seconds if speed else a.seconds / b.seconds) for a, b in pairs]
        return Figure(
            f"{name} : {base}" + " (speed)" * speed,
            median(ratios),
            spread=quartiles(ratios),
            at_most=at_most,
            at_least=at_least,
        )

    def share(self, name: str, base: str) -> Figure:
        """Return how much of the duration of `base` a subject takes, in percent."""
        ratio = self.ratio(name, base)
        low, high = ratio.spread or (ratio.value, ratio.value)
        return Figure(f"{name}, of {base}", 100 * ratio.value, "%", (100 * low, 100 * high))

    def difference(self, name: str, base: str) -> Figure:
        """Return how much longer than `base` a subject takes, in microseconds."""
        pairs = zip(self._samples[name], self._samples[base], strict=True)
        differences = [1e6 * (a.seconds - b.seconds) for a, b in pairs]
        spread = quartiles(differences)
        return Figure(f"{name} less {base}", median(differences), "us", spread)

    def growth(
        self, small: str, large: str, base_small: str, base_large: str, *, at_most: float
    ) -> Figure:
        """Return how many times as much as a base a subject grows from small to large."""
        rounds = zip(
            *(self._samples[name] for name in (small, large, base_small, base_large)), strict=True
        )
        ratios = [(b.seconds / a.seconds) / (d.seconds / c.seconds) for a, b, c, d in rounds]
        return Figure(
            f"growth to {large}, of the growth to {base_large}",
            median(ratios),
            spread=quartiles(ratios),
            at_most=at_most,
        )

    def rows(self) -> list[Row]:
        """Return the table."""
        rows = []
        for subject in self._subjects:
            samples = self._samples[subject.name]
            seconds = [sample.seconds for sample in samples]
            lags = sorted(lag for sample in samples for lag in sample.lags)
            held = sorted(lag for sample in samples for lag in sample.held)
            rows.append(
                Row(
                    name=subject.name,
                    median_s=median(seconds),
                    p99_s=_p99(sorted(seconds)),
                    cpu_s=median(sample.cpu_s for sample in samples),
                    rss_bytes=max(sample.rss_bytes for sample in samples),
                    bytes_per_s=subject.nbytes / median(seconds),
                    lag_p99_s=_p99(lags) if lags else None,
                    lag_worst_s=lags[-1] if lags else None,
                    held_p99_s=_p99(held) if held else None,
                )
            )
        return rows


async def paired(
    subjects: Sequence[Subject], *, rounds: int, warmup: int = 1, lag: bool = False
) -> Paired:
    """Measure subjects in turns.

    Args:
        subjects: At least one; the order rotates from round to round.
        rounds: How many count.
        warmup: How many go before, uncounted.
        lag: Whether to watch the event loop beside each pass; for passes of milliseconds.

    Raises:
        SubjectError: A subject raised.
    """
    result = Paired(subjects)
    for number in range(-warmup, rounds):
        turn = number % len(subjects)
        for subject in (*subjects[turn:], *subjects[:turn]):
            sample = await _measure(subject, lag=lag)
            if number >= 0:
                result.add(subject, sample)
    return result


def run_child(code: str, *, env: Mapping[str, str] | None = None) -> tuple[str, Pass]:
    """Run Python code in a process of its own.

    Args:
        code: What to run.
        env: Its environment, if not that of this process.

    Returns:
        What it printed, and its duration, CPU time and peak memory as a pass of one operation.

    Raises:
        SubjectError: It failed.
    """
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SubjectError(f"a child process ended with status {process.returncode}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return printed, Pass(1, seconds, usage.ru_utime + usage.ru_stime, peak_bytes)


def child(name: str, code: str, *, env: Mapping[str, str] | None = None) -> Subject:
    """Return the subject that runs `code` in a new process; it prints the seconds that count."""

    def run() -> Pass:
        printed, seen = run_child(code, env=env)
        return attrs.evolve(seen, seconds=float(printed))

    return Subject(name, run)


async def _measure(subject: Subject, *, lag: bool) -> _Sample:
    if not lag:
        return await _pass(subject)
    loop_lag = LoopLag()
    async with loop_lag.watch():
        sample = await _pass(subject)
    return attrs.evolve(sample, lags=loop_lag.lags_s, held=loop_lag.held_s)


async def _pass(subject: Subject) -> _Sample:
    cpu_s, began = time.process_time(), time.perf_counter()
    try:
        done = subject.run()
        if inspect.isawaitable(done):
            done = await done
    except Exception as error:  # noqa: BLE001 - a vendor's may not keep its frames
        text = "".join(traceback.format_exception(error))
        error.__traceback__ = error.__context__ = error.__cause__ = None
        raise SubjectError(f"{subject.name}: {text}") from None
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    seen = done if isinstance(done, Pass) else Pass(done)
    return _Sample(
        seconds=(seconds if seen.seconds is None else seen.seconds) / seen.operations,
        cpu_s=(cpu_s if seen.cpu_s is None else seen.cpu_s) / seen.operations,
        rss_bytes=rss_bytes() if seen.rss_bytes is None else seen.rss_bytes,
        lags=(),
        held=(),
    )


def rss_bytes() -> int:
    """Return the resident memory of this process; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - each pass
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return 0


def _delays(late_s: float) -> Iterator[float]:
    """Yield the delay of a probe, and of those that were due meanwhile."""
    while late_s > 0:
        yield late_s
        late_s -= _LAG_INTERVAL_S


def _waited_for_processor_s() -> float:
    """Return how long this thread, though ready, has waited; 0 where there is no /proc."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as schedstat:  # noqa: PTH123
            return int(schedstat.read().split()[1]) / 1e9
    except FileNotFoundError:
        return 0


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def _p99(ordered: Sequence[float]) -> float:
    return ordered[-(-99 * len(ordered) // 100) - 1]
