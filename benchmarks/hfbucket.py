"""What the bucket backend moves beside huggingface_hub, against a local Hub in another process.

Reads are compared with LMCache's way: ``HfApi.download_bucket_files`` into a temporary directory,
then each file read into place. Writes are compared with ``HfApi.batch_bucket_files``, which takes
copies of the values. Both run in a thread, as they block; the backend remembers no metadata here,
so that each batch asks for it, as theirs do. hf_xet, by which contents come to both, is measured
alone, too: what it brings is dropped. Values are noise and new in each pass of writing. Processor
time is that of this process and of the server, which shares the processors with it.

``latency`` is added by the server: 60 ms to each request to the Hub, 30 ms to each to the CAS.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import attrs

from benchmarks.runner import (
    Figure,
    Options,
    Paired,
    Pass,
    Report,
    Row,
    Subject,
    paired,
    rss_bytes,
)
from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.backends.hfbucket import HFBucketBackend
from tieredkv.clients.hub_answers import FileInfo
from tieredkv.clients.xet import XetClient
from tieredkv.config import KiB, MiB
from tieredkv.frames import SizeCheck
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing import hub
from tieredkv.testing.hub.process import ProcessHub

ResultT = TypeVar("ResultT")

_BUCKET: Final = "local/bench"
_COUNT: Final = 32


@attrs.frozen(kw_only=True)
class _Case:
    """One comparison.

    Attributes:
        cas: Where contents go.
        nbytes: Of a value.
        at_least: Target, in times the speed of the peer.
        latency: Whether requests take their time.
        workers: Downloads at a time.
    """

    cas: hub.CasKind
    nbytes: int
    at_least: float
    latency: bool = False
    workers: int = 16

    @property
    def title(self) -> str:
        """What the tables call it."""
        size = f"{self.nbytes // MiB} MiB" if self.nbytes >= MiB else f"{self.nbytes // KiB} KiB"
        return f"{_COUNT} x {size}, {self.cas} CAS" + ", 60/30 ms" * self.latency


_READS: Final = (
    _Case(cas="local", nbytes=10 * MiB, at_least=1.3, workers=4),
    _Case(cas="http", nbytes=10 * MiB, at_least=2.0, workers=4),
    _Case(cas="http", nbytes=MiB, at_least=2.0, latency=True),
    _Case(cas="http", nbytes=4 * MiB, at_least=1.7, latency=True),
)
_WRITES: Final = (
    _Case(cas="local", nbytes=4 * MiB, at_least=1.0),
    _Case(cas="http", nbytes=4 * MiB, at_least=1.2),
    _Case(cas="http", nbytes=4 * MiB, at_least=1.2, latency=True),
)


def run(options: Options) -> Iterator[Report]:
    """Measure all of it, on asyncio."""
    with tempfile.TemporaryDirectory() as home:
        # huggingface_hub and hf_xet read this when they are imported.
        os.environ |= {"HF_HOME": home, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "RUST_LOG": "off"}
        cases = [
            *((reads, case) for case in _READS),
            *((writes, case) for case in _WRITES),
        ]
        for measure, case in cases:
            if options.quick:
                case = attrs.evolve(case, nbytes=64 * KiB)  # noqa: PLW2901 - the same, smaller
            yield anyio.run(measure, options, case)
        yield anyio.run(memory, options)


class _Clock:
    """Takes the time of a pass from now on."""

    def __init__(self, server: ProcessHub) -> None:
        self._server = server
        self._cpu_s = self._both_cpu_s()
        self._began = time.perf_counter()

    def stop(self) -> Pass:
        seconds = time.perf_counter() - self._began
        return Pass(_COUNT, seconds, self._both_cpu_s() - self._cpu_s)

    def _both_cpu_s(self) -> float:
        server_clock = ~self._server.pid << 3 | 2  # as clock_getcpuclockid(3) makes it on Linux
        server_s = time.clock_gettime(server_clock) if sys.platform == "linux" else 0.0
        return time.process_time() + server_s


class _Batch:
    """Values in memory, a bucket for them, and both ways between."""

    def __init__(self, server: ProcessHub, case: _Case) -> None:
        from huggingface_hub import HfApi

        self.server = server
        self.api = HfApi(endpoint=server.endpoint, token=server.token)
        self.api.create_bucket(_BUCKET, private=True)
        self.case = case
        self.names = [f"value-{number}" for number in range(_COUNT)]
        self.memory = [memoryview(bytearray(case.nbytes)) for _ in self.names]
        self.threads = ThreadPoolExecutor(1)
        self.backend = HFBucketBackend(
            f"hf://buckets/{_BUCKET}/ours",
            endpoint=server.endpoint,
            token=server.token,
            metadata_ttl_s=0,
            transfer_workers=case.workers,
            compression="none",
        )

    def _refill(self) -> None:
        for view in self.memory:
            for at in range(0, view.nbytes, 64 * KiB):  # in steps that nobody has to wait for
                piece = view[at : at + 64 * KiB]
                piece[:] = os.urandom(piece.nbytes)

    async def read(self) -> Pass:
        requests = [
            ReadRequest(name, (view,), SizeCheck(name, view))
            for name, view in zip(self.names, self.memory, strict=True)
        ]
        clock = _Clock(self.server)
        outcomes = await self.backend.read_many(requests)
        done = clock.stop()
        assert all(outcome.status is GetStatus.HIT for outcome in outcomes)
        return done

    async def read_and_drop(self) -> Pass:
        """Have the vendor bring the contents, as the backend does, and put them nowhere."""
        bucket = self.backend._bucket  # noqa: SLF001 - its parts, without what it makes of them
        assert bucket is not None
        clock = _Clock(self.server)
        paths = [bucket.handle.path_of(name) for name in self.names]
        found, _ = await bucket.find(paths, fresh=True)
        grant = await bucket.grants.get("read")
        infos = [info for info in found.values() if isinstance(info, FileInfo)]
        assert len(infos) == len(paths)

        def drop(info: FileInfo, xet: XetClient) -> None:
            xet.download(grant, info, lambda _: None)

        await bucket.downloads.run_all([partial(drop, info) for info in infos])
        return clock.stop()

    async def write(self) -> Pass:
        await self._in_thread(self._refill)
        requests = [
            WriteRequest(name, view.nbytes, view.toreadonly)
            for name, view in zip(self.names, self.memory, strict=True)
        ]
        clock = _Clock(self.server)
        outcomes = await self.backend.write_many(requests)
        done = clock.stop()
        assert all(outcome.status is PutStatus.STORED for outcome in outcomes)
        return done

    async def read_peer(self) -> Pass:
        return await self._in_thread(self._read_peer)

    async def write_peer(self) -> Pass:
        await self._in_thread(self._refill)
        return await self._in_thread(self._write_peer)

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def _read_peer(self) -> Pass:
        clock = _Clock(self.server)
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory, name) for name in self.names]
            paths = [f"ours/{name}" for name in self.names]
            self.api.download_bucket_files(_BUCKET, list(zip(paths, files, strict=True)))
            for file, view in zip(files, self.memory, strict=True):
                with file.open("rb", buffering=0) as opened:
                    assert opened.readinto(view) == view.nbytes
        return clock.stop()

    def _write_peer(self) -> Pass:
        clock = _Clock(self.server)
        pairs = zip(self.memory, self.names, strict=True)
        self.api.batch_bucket_files(
            _BUCKET, add=[(bytes(view), f"theirs/{name}") for view, name in pairs]
        )
        return clock.stop()


async def reads(options: Options, case: _Case) -> Report:
    """Measure loads."""
    async with _prepared(case) as batch:
        await batch.write()
        subjects = [
            Subject("huggingface_hub", batch.read_peer, case.nbytes),
            Subject("tieredkv", batch.read, case.nbytes),
            Subject("hf_xet alone", batch.read_and_drop, case.nbytes),
        ]
        result, counts = await _compared(batch, subjects, options.rounds_or(11))
    rows = result.rows()
    figures = [
        result.ratio("tieredkv", "huggingface_hub", at_least=case.at_least, speed=True),
        result.ratio("hf_xet alone", "huggingface_hub", speed=True),
        *_requests(counts, at_most=1),
        *_processors(rows),
    ]
    if case.nbytes == 10 * MiB:
        figures += _lags(rows)
    title = f"Hugging Face Bucket: load of {case.title}"
    return Report(title, rows, figures, "loads, beside those of huggingface_hub", case.title)


def _processors(rows: Sequence[Row]) -> Iterator[Figure]:
    return (Figure(f"processors busy, {row.name}", row.cpu_s / row.median_s, "") for row in rows)


def _lags(rows: Sequence[Row]) -> Iterator[Figure]:
    theirs, ours, *_ = rows
    for name, lag_s, at_most in (
        ("", ours.lag_p99_s, 20),
        (", less the wait for a processor", ours.held_p99_s, None),
        (", huggingface_hub", theirs.lag_p99_s, None),
    ):
        yield Figure(f"event-loop lag, p99{name}", 1e3 * (lag_s or 0), "ms", at_most=at_most)


async def _compared(
    batch: _Batch, subjects: Sequence[Subject], rounds: int
) -> tuple[Paired, dict[str, int]]:
    """Return how subjects compare, and how many requests to the Hub each makes."""
    counts = {}
    for subject in subjects:
        batch.server.clear_log()
        await subject.run()  # type: ignore[misc]
        counts[subject.name] = _hub_requests(batch.server.log)
    if batch.case.latency:
        _slow_down(batch.server)
    return await paired(subjects, rounds=rounds, lag=True), counts


async def writes(options: Options, case: _Case) -> Report:
    """Measure uploads."""
    async with _prepared(case) as batch:
        subjects = [
            Subject("huggingface_hub", batch.write_peer, case.nbytes),
            Subject("tieredkv", batch.write, case.nbytes),
        ]
        result, counts = await _compared(batch, subjects, options.rounds_or(7))
    rows = result.rows()
    figures = [
        result.ratio("tieredkv", "huggingface_hub", at_least=case.at_least, speed=True),
        *_requests(counts, at_most=1),
        *_processors(rows),
    ]
    title = f"Hugging Face Bucket: upload of {case.title}"
    panel = "uploads, beside those of huggingface_hub"
    return Report(title, rows, figures, panel, case.title)


async def memory(options: Options) -> Report:
    """Measure how much a process grows while it writes much more than it may hold."""
    count, nbytes = (16, MiB) if options.quick else (200, 16 * MiB)
    source = memoryview(bytearray(nbytes))
    grown = []
    async with _prepared(_Case(cas="http", nbytes=KiB, at_least=0)) as batch:
        await batch.write()
        before = rss_bytes()
        for at in range(0, count, 8):
            source[:] = os.urandom(nbytes)
            requests = [
                WriteRequest(f"large-{number}", nbytes, source.toreadonly)
                for number in range(at, at + 8)
            ]
            outcomes = await batch.backend.write_many(requests)
            assert all(outcome.status is PutStatus.STORED for outcome in outcomes)
            grown.append(rss_bytes() - before)
    half = len(grown) // 2
    figures = [
        Figure("most growth", max(grown) / MiB, "MiB", at_most=512),
        Figure(
            "growth in the second half",
            (max(grown[half:]) - max(grown[:half])) / MiB,
            "MiB",
            at_most=64,
        ),
    ]
    return Report(
        f"Hugging Face Bucket: memory while writing {count} x {nbytes // MiB} MiB", (), figures
    )


@asynccontextmanager
async def _prepared(case: _Case) -> AsyncIterator[_Batch]:
    with hub.start(process=True, cas=case.cas) as server:
        assert isinstance(server, ProcessHub)
        batch = _Batch(server, case)
        await batch.backend.open()
        try:
            yield batch
        finally:
            await batch.backend.aclose()
            batch.threads.shutdown()


def _slow_down(server: hub.LocalHub) -> None:
    server.inject(hub.Fault(path="^/cas/", delay_s=0.03))
    server.inject(hub.Fault(delay_s=0.06))


def _hub_requests(log: Sequence[Mapping[str, Any]]) -> int:
    """Count requests to the Hub, those for tokens and telemetry apart."""
    apart = ("/cas/", "/v1/telemetry")
    return sum(
        not entry["path"].startswith(apart) and not entry["path"].endswith("-token")
        for entry in log
    )


def _requests(counts: Mapping[str, int], *, at_most: int) -> list[Figure]:
    return [
        Figure("Hub requests a batch, tokens apart", counts["tieredkv"], "", at_most=at_most),
        Figure("the same, huggingface_hub", counts["huggingface_hub"], ""),
    ]


if __name__ == "__main__":
    for report in run(Options()):
        print(report.table(), flush=True)
