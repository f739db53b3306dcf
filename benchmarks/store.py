"""What the store adds to its backend, and how long the event loop has to wait meanwhile."""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import anyio

from benchmarks.runner import Figure, Options, Report, Subject, paired
from tieredkv import GetStatus, L1Config, TieredStore
from tieredkv.backends import Backend, DiskBackend, ReadRequest, ValkeyBackend
from tieredkv.config import KiB, MiB
from tieredkv.frames import TRAILER_BYTES, FrameCheck
from tieredkv.testing.valkey import ValkeyServer

_BATCH: Final = 8
_WORKERS: Final = 4
_VALKEY_WORKERS: Final = 2
_L1_VALUES: Final = 9 * _BATCH  # an eighth of L1 may be in flight: more than a batch
_LAG_VALUES: Final = 32


def run(options: Options) -> Iterator[Report]:
    """Measure all, on asyncio, with files in the page cache and a server beside us."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "overhead"
        yield anyio.run(overhead, options, lambda: DiskBackend(path, num_workers=_WORKERS), 1.08)
        with ValkeyServer() as server:
            yield anyio.run(
                overhead,
                options,
                lambda: ValkeyBackend(server.url, num_workers=_VALKEY_WORKERS),
                1.03,
            )
        yield anyio.run(loop_lag, options, Path(root) / "lag")


async def overhead(options: Options, make: Callable[[], Backend], at_most: float) -> Report:
    """Measure loads of 4 MiB in batches of 8 through the store and through the backend alone.

    Both verify the checksums. The store's L1 holds half of the values, and they are asked for in
    turn, so each load evicts; the backend reads into as much memory, used in turn as well.
    """
    nbytes = 64 * KiB if options.quick else 4 * MiB
    count = 2 * _L1_VALUES
    block_bytes = nbytes + 4 * KiB
    names = [f"chunk-{number:06d}" for number in range(count)]
    await _write(make(), names, nbytes)
    batches = [names[at : at + _BATCH] for at in range(0, count, _BATCH)]
    l1 = L1Config(
        capacity=_L1_VALUES * block_bytes, overflow=0, trigger_watermark=1, eviction_ratio=0
    )
    backend, behind = make(), make()
    kind = type(backend).__name__
    async with TieredStore(l1, [behind]) as store:
        await backend.open()
        subjects = [
            Subject(kind, _backend_loads(backend, batches, block_bytes, nbytes), nbytes),
            Subject("TieredStore", _store_loads(store, batches, nbytes), nbytes),
        ]
        # A whole turn over the values before, so that all memory has been touched.
        result = await paired(subjects, rounds=options.rounds_or(201), warmup=2 * len(batches))
        await backend.aclose()
    return Report(
        f"Loads from {backend.name}, {nbytes // KiB} KiB in batches of {_BATCH}",
        result.rows(),
        [
            result.ratio("TieredStore", kind, at_most=at_most),
            result.difference("TieredStore", kind),
        ],
        panel=f"loads in batches of {_BATCH}, beside those of the backend alone",
        label=f"{backend.name}, {nbytes // KiB} KiB",
    )


async def _write(backend: Backend, names: Sequence[str], nbytes: int) -> None:
    """Have a store write the values, so that they are framed."""
    value = random.Random(1).randbytes(nbytes)
    async with TieredStore(4 * (nbytes + 4 * KiB), [backend]) as store:
        for name in names:
            result = await store.put(name, value)
            result.raise_for_status()


def _store_loads(
    store: TieredStore, batches: Sequence[Sequence[str]], nbytes: int
) -> Callable[[], Awaitable[int]]:
    turns = cycle(batches)

    async def run() -> int:
        batch = next(turns)
        with await store.get_many(batch, sizes=[nbytes] * len(batch)) as results:
            assert all(result.tier not in (None, "l1") for result in results), results
        return len(batch)

    return run


def _backend_loads(
    backend: Backend, batches: Sequence[Sequence[str]], block_bytes: int, nbytes: int
) -> Callable[[], Awaitable[int]]:
    turns = cycle(batches)
    num_blocks = len(batches) * _BATCH // 2
    blocks = cycle(_blocks(num_blocks, block_bytes))

    async def run() -> int:
        requests = []
        for name in next(turns):
            block = next(blocks)
            payload, trailer = block[:nbytes], block[nbytes : nbytes + TRAILER_BYTES]
            check = FrameCheck(name, payload, trailer)
            whole = (block[: nbytes + TRAILER_BYTES],)
            buffers = (payload, trailer) if backend.capabilities.scatter else whole
            requests.append(ReadRequest(name, buffers, check))
        outcomes = await backend.read_many(requests)
        assert all(outcome.status is GetStatus.HIT for outcome in outcomes), outcomes
        return len(outcomes)

    return run


def _blocks(count: int, block_bytes: int) -> list[memoryview]:
    region = mmap.mmap(-1, count * block_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = memoryview(region)
    return [memory[at : at + block_bytes] for at in range(0, memory.nbytes, block_bytes)]


async def loop_lag(options: Options, root: Path) -> Report:
    """Measure how late the event loop is while 32 values of 10 MiB are loaded.

    Beside the store: as many threads that do nothing but `preadv` and wait.
    """
    nbytes = 256 * KiB if options.quick else 10 * MiB
    block_bytes = nbytes + 4 * KiB
    names = [f"chunk-{number:06d}" for number in range(3 * _LAG_VALUES)]
    await _write(DiskBackend(root), names, nbytes)
    batches = [names[at : at + _LAG_VALUES] for at in range(0, len(names), _LAG_VALUES)]
    l1 = L1Config(
        capacity=2 * _LAG_VALUES * block_bytes, overflow=0, trigger_watermark=1, eviction_ratio=0
    )
    files = [path for path in root.rglob("chunk-*") if path.is_file()]  # noqa: ASYNC240 - untimed
    with ThreadPoolExecutor(_WORKERS) as threads:
        async with TieredStore(l1, [DiskBackend(root, num_workers=_WORKERS)]) as store:
            subjects = [
                Subject("threads with preadv", _thread_loads(threads, files, block_bytes), nbytes),
                Subject("TieredStore", _store_loads(store, batches, nbytes), nbytes),
            ]
            result = await paired(subjects, rounds=options.rounds_or(21), warmup=2, lag=True)
    rows = result.rows()
    bare, ours = rows
    return Report(
        f"Event loop while {_LAG_VALUES} values of {nbytes // KiB} KiB are loaded from disk",
        rows,
        [
            _lag("with TieredStore, p99", ours.lag_p99_s, at_most=5),
            _lag("with TieredStore, p99, less the wait for a processor", ours.held_p99_s),
            _lag("with TieredStore, worst", ours.lag_worst_s, at_most=20),
            _lag("with threads, p99", bare.lag_p99_s),
            _lag("with threads, worst", bare.lag_worst_s),
            result.ratio("TieredStore", "threads with preadv"),
        ],
        panel=f"delay of the event loop while {_LAG_VALUES} x {nbytes // KiB} KiB are loaded",
    )


def _lag(name: str, seconds: float | None, *, at_most: float | None = None) -> Figure:
    return Figure(f"lag {name}", 1e3 * (seconds or 0), "ms", at_most=at_most)


def _thread_loads(
    threads: ThreadPoolExecutor, files: Sequence[Path], block_bytes: int
) -> Callable[[], Awaitable[int]]:
    turns = cycle(files)
    blocks = _blocks(_LAG_VALUES, block_bytes)

    def read(path: Path, block: memoryview) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert os.preadv(descriptor, [block], 0) > 0
        finally:
            os.close(descriptor)

    async def run() -> int:
        loop = asyncio.get_running_loop()
        chosen = islice(turns, _LAG_VALUES)
        calls = [
            loop.run_in_executor(threads, read, path, block)
            for path, block in zip(chosen, blocks, strict=True)
        ]
        await asyncio.gather(*calls)
        return len(calls)

    return run
