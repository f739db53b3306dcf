"""A hit in L1 beside caches of objects in this process, and beside a copy of the bytes.

cachetools and aiocache hand out the object that was put in. That is cheaper, and it is less: the
cache can neither bound the memory that its readers hold, nor have the bytes in memory of its own. A
copy is what such a cache would cost on top. py-key-value makes new objects from JSON at each hit.

A pass asks for every key once, one by one or in batches, and holds what it gets until its end. Our
store does so on three loops. The values are compared once before the clock starts.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any, Final

import anyio
from anyio.from_thread import start_blocking_portal
from cachetools import LRUCache

from benchmarks.contenders import LOOPS
from benchmarks.peer import Load, lacking
from benchmarks.runner import Options, Pass, Report, Subject, paired
from tieredkv import TieredStore
from tieredkv.config import KiB, MiB

# payload bytes, values, values at a time
_CASES: Final = (
    (1 * KiB, 256, 1),
    (64 * KiB, 256, 1),
    (64 * KiB, 256, 32),
    (64 * KiB, 256, 256),
    (1 * MiB, 32, 1),
    (1 * MiB, 32, 32),
    (4 * MiB, 8, 1),
    (10 * MiB, 4, 1),
)
PEERS: Final = {"aiocache": ("aiocache",), "py-key-value, memory": ("py-key-value-aio",)}


class Hits:
    """Ways to get all values of a load, `batch` at a time."""

    def __init__(self, load: Load, batch: int) -> None:
        self.load = load
        self.batch = batch
        self._groups = [slice(at, at + batch) for at in range(0, len(load.keys), batch)]
        self._keys = [load.keys[group] for group in self._groups]
        self._object_keys = [load.object_keys[group] for group in self._groups]

    async def lru(self) -> Callable[[], Awaitable[list[Any]]]:
        cache: LRUCache[str, bytes] = LRUCache(len(self.load.keys))
        cache.update(zip(self.load.keys, self.load.values, strict=True))

        async def hits() -> list[Any]:
            return [cache[key] for key in self.load.keys]

        return hits

    async def copies(self) -> Callable[[], Awaitable[list[Any]]]:
        for buffer, value in zip(self.load.buffers, self.load.values, strict=True):
            buffer[:] = value

        async def hits() -> list[Any]:
            return [bytes(buffer) for buffer in self.load.buffers]

        return hits

    async def aiocache(self) -> Callable[[], Awaitable[list[Any]]]:
        cache: Any = import_module("aiocache").SimpleMemoryCache(timeout=None)
        await cache.multi_set(list(zip(self.load.keys, self.load.values, strict=True)))

        async def one_by_one() -> list[Any]:
            return [await cache.get(key) for key in self.load.keys]

        async def in_batches() -> list[Any]:
            return [value for keys in self._keys for value in await cache.multi_get(keys)]

        return one_by_one if self.batch == 1 else in_batches

    async def key_value(self) -> Callable[[], Awaitable[list[Any]]]:
        stores: Any = import_module("key_value.aio.stores.memory")
        store = stores.MemoryStore(default_collection="peers")
        entries = [{"value": base64.b64encode(value).decode()} for value in self.load.values]
        await store.put_many(self.load.keys, entries)

        async def one_by_one() -> list[Any]:
            got = []
            for key in self.load.keys:
                entry = await store.get(key)
                got.append(base64.b64decode(entry["value"]))
            return got

        async def in_batches() -> list[Any]:
            entries = [entry for keys in self._keys for entry in await store.get_many(keys)]
            return [base64.b64decode(entry["value"]) for entry in entries]

        return one_by_one if self.batch == 1 else in_batches

    async def store(self, store: TieredStore) -> Callable[[], Awaitable[list[Any]]]:
        await store.put_many(zip(self.load.object_keys, self.load.values, strict=True))

        async def one_by_one() -> list[Any]:
            got = []
            for key in self.load.object_keys:
                lease = await store.get(key)
                assert lease is not None
                with lease:
                    got.append(lease.view)
            return got

        async def in_batches() -> list[Any]:
            got = []
            for keys in self._object_keys:
                with await store.get_many(keys) as results:
                    got += [result.object.view for result in results if result.object]
            return got

        return one_by_one if self.batch == 1 else in_batches


def run(options: Options) -> Iterator[Report]:
    """Measure hits."""
    for name, packages in PEERS.items():
        if reason := lacking(*packages):
            print(f"without {name}: {reason}", file=sys.stderr)
    for nbytes, count, batch in _CASES[1:3] if options.quick else _CASES:
        yield anyio.run(_compare, options, Load(nbytes, count), batch)


async def _compare(options: Options, load: Load, batch: int) -> Report:
    ways = Hits(load, batch)
    made = {"cachetools.LRUCache": await ways.lru(), "copy": await ways.copies()}
    if not lacking(*PEERS["aiocache"]):
        made["aiocache"] = await ways.aiocache()
    if not lacking(*PEERS["py-key-value, memory"]):
        made["py-key-value, memory"] = await ways.key_value()
    subjects = []
    for name, hits in made.items():
        _prove(name, load, await hits())
        subjects.append(Subject(name, partial(timed, hits)))
    with ExitStack() as stack:
        for loop, (backend, backend_options) in LOOPS.items():
            portal = stack.enter_context(start_blocking_portal(backend, backend_options))
            store = TieredStore(load.l1())
            stack.enter_context(portal.wrap_async_context_manager(store))
            hits = portal.call(ways.store, store)
            name = "TieredStore" if loop == "asyncio" else f"TieredStore, {loop}"
            _prove(name, load, portal.call(hits))
            subjects.append(Subject(name, partial(portal.call, timed, hits)))
        result = await paired(subjects, rounds=options.rounds_or(41), warmup=2)
    one, *others = (subject.name for subject in subjects[len(made) :])
    how = f"{batch} at a time" if batch > 1 else "one by one"
    return Report(
        f"Memory peers: hits of {load}, {how}",
        result.rows(),
        [
            *(result.ratio(one, name, speed=True) for name in made),
            *(result.ratio(name, one, speed=True) for name in others),
        ],
    )


async def timed(hits: Callable[[], Awaitable[list[Any]]]) -> Pass:
    """Do one pass."""
    began = time.perf_counter()
    got = await hits()
    return Pass(len(got), time.perf_counter() - began)


def _prove(name: str, load: Load, got: Sequence[Any]) -> None:
    for value, right in zip(got, load.values, strict=True):
        assert memoryview(value).tobytes() == right, f"{name} returns wrong bytes"
