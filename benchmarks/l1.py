"""What L1 costs: hits beside a plain LRU, puts beside a copy, and both with a million keys."""

from __future__ import annotations

import gc
import json
import mmap
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import Final

import anyio
import attrs
from cachetools import LRUCache

from benchmarks.runner import Figure, Options, Report, Subject, paired, rss_bytes, run_child
from tieredkv import Key, L1Config, ObjectKey, TieredStore
from tieredkv.config import KiB, MiB

_BATCH: Final = 32
_PASS_KEYS: Final = 4 * _BATCH  # passes take less time than a time slice of the scheduler
_PASS_BYTES: Final = 4 * MiB
_PUT_LIMITS: Final = {64 * KiB: None, 1 * MiB: 1.2, 4 * MiB: 1.1}
_LOOKUPS: Final = 200  # a pass
_BLOCK_BYTES: Final = 64  # of an empty value: the room for its trailer


def _name(number: int) -> str:
    return f"chunk-{number:09d}"


def _object_key(number: int) -> ObjectKey:
    return ObjectKey("meta-llama/Llama-3-8B", 0xFF, number.to_bytes(32))


_KINDS: Final[dict[str, Callable[[int], Key]]] = {"str": _name, "ObjectKey": _object_key}


def run(options: Options) -> Iterator[Report]:
    """Measure all of it, on asyncio."""
    for kind in _KINDS:
        yield anyio.run(hits, options, kind)
    for nbytes, limit in _PUT_LIMITS.items():
        yield anyio.run(puts, options, nbytes, limit)
    yield anyio.run(growth, options)
    yield bookkeeping(options)


async def hits(options: Options, kind: str) -> Report:
    """Measure hits one by one and in batches of 32, each with a view; keys of one kind."""
    count = 64 if options.quick else 1_000
    keys = [_KINDS[kind](number) for number in range(count)]
    random.Random(1).shuffle(keys)
    names = [_name(number) for number in range(count)]
    lru: LRUCache[str, bytes] = LRUCache(count)
    value = bytes(64 * KiB)
    async with TieredStore(L1Config(capacity=2 * count * 68 * KiB)) as store:
        for name, key in zip(names, keys, strict=True):
            lru[name] = value
            await store.put(key, value)

        def plain() -> int:
            for name in names:
                lru[name]
            return count

        subjects = [
            Subject("cachetools.LRUCache", plain),
            Subject(f"get({kind})", _one_by_one(store, keys)),
            Subject(f"get_many(32 {kind})", _in_batches(store, keys)),
        ]
        warmup = -(-count // _PASS_KEYS)  # every key once: its first view is dearer
        result = await paired(subjects, rounds=options.rounds_or(1001), warmup=warmup)
    base, one, many = (subject.name for subject in subjects)
    return Report(
        f"L1 hits with view and release, {count} keys, {kind}",
        result.rows(),
        [result.ratio(one, base, at_most=13), result.ratio(many, base, at_most=11)],
        panel="hits with view and release, beside those of cachetools.LRUCache",
    )


def _one_by_one(store: TieredStore, keys: Sequence[Key]) -> Callable[[], Awaitable[int]]:
    passes = cycle([keys[at : at + _PASS_KEYS] for at in range(0, len(keys), _PASS_KEYS)])

    async def run() -> int:
        chosen = next(passes)
        for key in chosen:
            lease = await store.get(key)
            assert lease is not None
            with lease:
                lease.view  # noqa: B018 - what is measured
        return len(chosen)

    return run


def _in_batches(store: TieredStore, keys: Sequence[Key]) -> Callable[[], Awaitable[int]]:
    batches = cycle([keys[at : at + _BATCH] for at in range(0, len(keys) - _BATCH + 1, _BATCH)])

    async def run() -> int:
        for batch in islice(batches, _PASS_KEYS // _BATCH):
            with await store.get_many(batch) as results:
                for result in results:
                    assert result.object is not None
                    result.object.view  # noqa: B018 - what is measured
        return _PASS_KEYS

    return run


async def puts(options: Options, nbytes: int, limit: float | None) -> Report:
    """Measure puts into a full L1 beside copies into as much memory of its kind; both are warm.

    A plain LRU says what a few steps of Python cost behind such a copy. A second L1 lies in memory
    of the system's small pages, as a caller's buffer may.
    """
    capacity = 16 * MiB if options.quick else 256 * MiB
    operations = _PASS_BYTES // nbytes
    # As many values as the processor's caches cannot hold, as when they have just been computed.
    data = memoryview(random.Random(1).randbytes(capacity // 4))
    next_values = cycle([data[at : at + nbytes] for at in range(0, data.nbytes, nbytes)])
    keys = [f"chunk-{number:06d}" for number in range(2 * capacity // nbytes)]
    memory = _memory(capacity, large_pages=True)  # as L1 has
    next_offsets = cycle(range(0, capacity, nbytes))

    def copy() -> int:
        for at, value in zip(islice(next_offsets, operations), next_values, strict=False):
            memory[at : at + nbytes] = value
        return operations

    lru: LRUCache[str, int] = LRUCache(capacity // nbytes)
    noted_keys = cycle(keys)

    def copy_and_note() -> int:
        offsets = islice(next_offsets, operations)
        for at, value, key in zip(offsets, next_values, noted_keys, strict=False):
            memory[at : at + nbytes] = value
            lru[key] = at
        return operations

    def put_into(store: TieredStore) -> Callable[[], Awaitable[int]]:
        next_keys = cycle(keys)  # by the time a key comes again, it has been evicted

        async def put() -> int:
            for key, value in zip(islice(next_keys, operations), next_values, strict=False):
                result = await store.put(key, value)
                assert result.ok
            return operations

        return put

    settings = L1Config(capacity=capacity, overflow=0)
    small_pages = attrs.evolve(settings, buffer=_memory(capacity))
    async with TieredStore(settings) as store, TieredStore(small_pages) as other:
        await _touch(store, data[:nbytes])
        await _touch(other, data[:nbytes])
        result = await paired(
            [
                Subject("copy", copy, nbytes),
                Subject("copy and LRUCache", copy_and_note, nbytes),
                Subject("put", put_into(store), nbytes),
                Subject("put, small pages", put_into(other), nbytes),
            ],
            rounds=options.rounds_or(501),
            warmup=capacity // _PASS_BYTES,
        )
    return Report(
        f"Puts into a full L1, {nbytes // KiB} KiB",
        result.rows(),
        [
            result.ratio("put", "copy", at_most=limit),
            result.ratio("put", "put, small pages"),
            result.difference("put", "copy"),
            result.difference("copy and LRUCache", "copy"),
        ],
        panel="puts into a full L1",
        label=f"{nbytes // KiB} KiB",
    )


def _memory(nbytes: int, *, large_pages: bool = False) -> memoryview:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if large_pages and sys.platform == "linux":
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


async def _touch(store: TieredStore, value: memoryview) -> None:
    """Use all of L1 once: a first touch of memory costs several times what a copy does."""
    capacity = store.stats().l1.capacity_bytes
    leases = []
    for number in range(capacity // value.nbytes - 2 - capacity // (16 * value.nbytes)):
        key = f"warm-{number}"
        await store.put(key, value)
        lease = await store.get(key)
        assert lease is not None
        leases.append(lease)
    for lease in leases:
        lease.release()


async def growth(options: Options) -> Report:
    """Measure how much dearer a hit is among a million keys than among a thousand.

    Every structure of so many objects outgrows the processor's caches; a bare dict with an
    OrderedDict says how much of the growth is due to that.
    """
    small, large = (200, 2_000) if options.quick else (1_000, 1_000_000)
    async with _empty_values(small) as few, _empty_values(large) as many:
        await _fill(few, small)
        await _fill(many, large)
        subjects = [
            Subject(f"dict + OrderedDict, {small:,}", _bare_hits(small)),
            Subject(f"dict + OrderedDict, {large:,}", _bare_hits(large)),
            Subject(f"get, {small:,}", _hits(few, small)),
            Subject(f"get, {large:,}", _hits(many, large)),
        ]
        result = await paired(subjects, rounds=options.rounds_or(501), warmup=8)
    bare_small, bare_large, get_small, get_large = (subject.name for subject in subjects)
    return Report(
        "Growth of a hit's cost with the number of keys",
        result.rows(),
        [
            result.ratio(bare_large, bare_small),
            result.ratio(get_large, get_small),
            result.growth(get_small, get_large, bare_small, bare_large, at_most=1.3),
        ],
    )


def _empty_values(count: int) -> TieredStore:
    # As many pages as with real values, and nearly no memory but the bookkeeping.
    capacity = 2 * count * _BLOCK_BYTES
    return TieredStore(L1Config(capacity=capacity, alignment_bytes=_BLOCK_BYTES))


async def _fill(store: TieredStore, count: int, key: Callable[[int], Key] = _name) -> None:
    for first in range(0, count, 1_000):
        await store.put_many((key(n), b"") for n in range(first, min(first + 1_000, count)))
    assert store.stats().l1.objects == count


def _lookups(count: int) -> Iterator[str]:
    """Return endless random keys, none of them the object that an index holds."""
    chosen = random.Random(1).choices(range(count), k=200_000)
    return cycle([_name(number) for number in chosen])


def _hits(store: TieredStore, count: int) -> Callable[[], Awaitable[int]]:
    lookups = _lookups(count)

    async def run() -> int:
        for key in islice(lookups, _LOOKUPS):
            lease = await store.get(key)
            assert lease is not None
            lease.release()
        return _LOOKUPS

    return run


def _bare_hits(count: int) -> Callable[[], int]:
    lookups = _lookups(count)
    index = {_name(number): [number] for number in range(count)}
    order = OrderedDict.fromkeys(index)

    def run() -> int:
        for key in islice(lookups, _LOOKUPS):
            index[key]
            order.move_to_end(key)
        return _LOOKUPS

    return run


def bookkeeping(options: Options) -> Report:
    """Measure memory for each key, and what the garbage collector does, in a fresh process."""
    count = 20_000 if options.quick else 1_000_000
    code = "import anyio, benchmarks.l1 as l1; anyio.run(l1.print_bookkeeping, {}, {!r})"
    figures = []
    for kind in _KINDS:
        printed, _ = run_child(code.format(count, kind))
        seen = json.loads(printed)
        figures += [
            Figure(f"resident bytes a key, {kind}", seen["bytes_per_key"], "B", at_most=600),
            Figure(f"longest gc pause while filling, {kind}", seen["longest_pause_s"] * 1e3, "ms"),
            Figure(f"a full collection, {kind}", seen["full_collection_s"] * 1e3, "ms"),
        ]
    return Report(f"Bookkeeping of {count:,} values, no view of any taken yet", (), figures)


async def print_bookkeeping(count: int, kind: str) -> None:
    """Print, as JSON, what `bookkeeping` reports; for its child process.

    The growth of resident memory is counted, keys included: it holds what no tracing of Python's
    allocator sees (the allocator's tags in their own memory) and what fragmentation adds. The
    values are empty, so nothing touches the arena.
    """
    pauses: list[float] = []
    began = 0.0

    def watch(phase: str, _: object) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - began)

    async with _empty_values(count) as store:
        await _fill(store, 1, _name)  # what is made once
        await store.delete(_name(0))
        gc.collect()
        before_bytes = rss_bytes()
        gc.callbacks.append(watch)
        await _fill(store, count, _KINDS[kind])
        longest_pause_s = max(pauses)
        gc.collect()
        gc.callbacks.remove(watch)
        print(
            json.dumps(
                {
                    "bytes_per_key": (rss_bytes() - before_bytes) / count,
                    "longest_pause_s": longest_pause_s,
                    "full_collection_s": pauses[-1],
                }
            )
        )
