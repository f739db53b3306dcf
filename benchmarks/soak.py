"""``python -m benchmarks.soak [OPERATIONS]``: everything at once, for long.

64 tasks put, read, delete, look up, prefetch and lease over L1, disk, Valkey and a bucket, and are
cancelled at random, while every medium is killed, stopped and restarted (`benchmarks.chaos`). Every
byte that comes back is compared: it has to be of a version of its key that was put, and not of one
older than what was put, deleted or read before. At the end nothing may be left behind. With
``--minutes`` it goes on for so long, and what the process takes may not go on growing.

Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel

from benchmarks.chaos import Chaos, Directory, Hub, Medium, Server, prepare_environment
from benchmarks.history import History
from benchmarks.vitals import Vitals, give_back
from tieredkv import (
    DeleteStatus,
    GetResult,
    L1Config,
    MemoryObject,
    PutResult,
    PutStatus,
    TieredStore,
    WriteBack,
    WriteThrough,
)
from tieredkv.backends import ThreadedBackend
from tieredkv.config import MiB
from tieredkv.errors import OutOfMemoryError
from tieredkv.testing.leaks import LeakCheck

_KEYS: Final = 300
_LOOPS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
_PATIENCE_S: Final = 60.0
_SAMPLES: Final = 240  # of what the process takes, in `--minutes`


class Soak:
    """The tasks on one store.

    Attributes:
        done: Operations begun.
        counts: Operations by name, those cancelled, and hits by tier.
        history: What was put.
    """

    def __init__(self, store: TieredStore, operations: int, seed: int, lasts_s: float) -> None:
        self.done: int = 0
        self.counts: Counter[str] = Counter()
        self.history: History = History()
        self._store = store
        self._operations = operations
        self._until = time.monotonic() + lasts_s
        self._chance = random.Random(seed)
        self._changes = (self._put, self._put_many, self._put_in_place, self._delete)
        self._reads = (self._get, self._get_many, self._get_into, self._look_up, self._prefetch)
        self._others = (self._stat, self._drop_l1)

    async def run(self, tasks: int, chaos: Chaos) -> None:
        """Operate in so many tasks until all is done, in time, and every fault has struck."""

        def is_over() -> bool:
            over = self.done >= self._operations and time.monotonic() >= self._until
            return over and chaos.is_complete

        async def work() -> None:
            while not is_over():
                self.done += 1
                limit_s = self._chance.choice([0.0005, 0.005, 0.05, math.inf, math.inf, math.inf])
                operation = self._choose()
                with anyio.move_on_after(limit_s) as scope:
                    await operation()
                self.counts[operation.__name__.strip("_")] += 1
                self.counts["cancelled"] += scope.cancelled_caught
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for _ in range(tasks):
                group.start_soon(work)

    async def recover(self) -> float:
        """Return how long it takes until every tier stores a value and deletes it again."""
        began = time.monotonic()
        with anyio.move_on_after(_PATIENCE_S):
            while True:
                await self._store.put("recovering", b"?")
                await self._store.flush()
                result = await self._store.delete("recovering")
                if {outcome.status for outcome in result.tiers.values()} == {DeleteStatus.DELETED}:
                    return time.monotonic() - began
                await anyio.sleep(0.1)
        reasons = {name: t["reason"] for name, t in (await self._store.status())["tiers"].items()}
        self.history.wrong.append(f"not all tiers work after {_PATIENCE_S} s: {reasons}")
        return math.inf

    async def settle(self) -> None:
        """Read everything once more, from all tiers; then nothing may be under way."""
        for _ in range(2):
            for number in range(_KEYS):
                await self._read([f"key-{number}"])
            await self._store.clear()
        await self._store.flush(_PATIENCE_S)
        stats = self._store.stats()
        with anyio.move_on_after(_PATIENCE_S):
            while stats.loads_in_flight or stats.blocks_held_by_views:
                await anyio.sleep(0.1)
                gc.collect()  # views of those that were cancelled
                stats = self._store.stats()
        await self._store.clear()
        stats = self._store.stats()
        left = {
            "loads": stats.loads_in_flight,
            "blocks held by views": stats.blocks_held_by_views,
            "leases": stats.l1.leases,
            "bytes of L1": stats.l1.used_bytes,
            "bytes of the overflow": stats.l1.overflow_used_bytes,
            "pending bytes": stats.pending_bytes,
        }
        self.history.wrong += [f"{count} {what} are left" for what, count in left.items() if count]

    # -- operations ------------------------------------------------------------------------------

    def _choose(self) -> Callable[[], Awaitable[None]]:
        (kind,) = self._chance.choices(
            (self._changes, self._reads, self._others), weights=(35, 60, 5)
        )
        return self._chance.choice(kind)

    def _some(self, most: int) -> list[str]:
        # Few keys get most of the traffic.
        count = self._chance.randint(1, most)
        return [f"key-{int(_KEYS * self._chance.random() ** 2)}" for _ in range(count)]

    async def _put(self) -> None:
        (key,) = self._some(1)
        async with self.history.changing([key]):
            value, version = self.history.new_value(key, self._chance)
            self._was_put(await self._store.put(key, value), version)

    async def _put_many(self) -> None:
        keys = list(dict.fromkeys(self._some(8)))
        async with self.history.changing(keys):
            new = [self.history.new_value(key, self._chance) for key in keys]
            items = [(key, value) for key, (value, _) in zip(keys, new, strict=True)]
            for result, (_, version) in zip(await self._store.put_many(items), new, strict=True):
                self._was_put(result, version)

    async def _put_in_place(self) -> None:
        (key,) = self._some(1)
        async with self.history.changing([key]):
            value, version = self.history.new_value(key, self._chance)
            try:
                async with self._store.reserve(key, len(value)) as slot:
                    slot.view[:] = value
                    await anyio.lowlevel.checkpoint()
            except OutOfMemoryError:
                return
            if slot.result is not None:
                self._was_put(slot.result, version)

    def _was_put(self, result: PutResult, version: int) -> None:
        if result.tiers["l1"].status is not PutStatus.REJECTED:  # else nothing was done
            self.history.changed(str(result.key), version)

    async def _delete(self) -> None:
        keys = list(dict.fromkeys(self._some(3)))
        async with self.history.changing(keys):
            version = self.history.next_version()
            for result in await self._store.delete_many(keys):
                if result.status is not DeleteStatus.PINNED:
                    self.history.changed(str(result.key), version)

    async def _get(self) -> None:
        """Read a value, and look at it again after a while."""
        (key,) = self._some(1)
        oldest = self.history.oldest(key)
        lease = await self._store.get(key)
        if lease is not None:
            with lease:
                self._verify(key, lease, oldest)
                await anyio.sleep(0.001 * self._chance.randrange(20))
                self._verify(key, lease, oldest)  # it stays as it is, whatever is put

    async def _get_many(self) -> None:
        await self._read(self._some(8))

    async def _read(self, keys: Sequence[str]) -> None:
        oldest = [self.history.oldest(key) for key in keys]
        with await self._store.get_many(keys) as results:
            self._verify_all(results, oldest)

    async def _get_into(self) -> None:
        (key,) = self._some(1)
        info = await self._store.stat(key)
        if info is not None:
            out = bytearray(info.nbytes)
            oldest = self.history.oldest(key)
            if await self._store.get_into(key, out) is not None:
                self.history.verify(key, out, oldest, "a buffer")

    async def _look_up(self) -> None:
        keys = self._some(8)
        oldest = [self.history.oldest(key) for key in keys]
        async with self._store.lookup(keys) as found:
            with await found.load() as results:
                self._verify_all(results, oldest)

    async def _prefetch(self) -> None:
        keys = self._some(8)
        oldest = [self.history.oldest(key) for key in keys]
        await self._store.prefetch(keys, policy="full")
        for key, version in zip(keys, oldest, strict=True):
            lease = self._store.get_nowait(key)
            if lease is not None:
                with lease:
                    self._verify(key, lease, version)

    async def _stat(self) -> None:
        await self._store.stat_many(self._some(8))

    async def _drop_l1(self) -> None:
        await self._store.clear()

    def _verify_all(self, results: Sequence[GetResult], oldest: Sequence[int]) -> None:
        for result, version in zip(results, oldest, strict=True):
            if result.object is not None:
                self._verify(str(result.key), result.object, version)

    def _verify(self, key: str, lease: MemoryObject, oldest: int) -> None:
        self.counts[f"hits in {lease.tier}"] += 1
        self.history.verify(key, lease.view, oldest, lease.tier)


async def soak(media: Sequence[Medium], leaks: LeakCheck, given: argparse.Namespace) -> list[str]:
    """Run; return what was wrong."""
    backends = [medium.backend() for medium in media]
    for backend in backends:
        if isinstance(backend, ThreadedBackend):
            leaks.watch(backend)
    store = TieredStore(
        L1Config(capacity=8 * MiB),
        backends,
        integrity=given.integrity,
        write_policy=WriteBack() if given.write_back else WriteThrough(),
        fence_s=24 * 3600.0,
    )
    async with store:
        lasts_s = 60 * given.minutes
        work, vitals = Soak(store, given.operations, given.seed, lasts_s), Vitals()
        span = given.operations // 100
        chaos = Chaos(media, seed=given.seed, span=span, progress=lambda: work.done)
        began = time.monotonic()
        with chaos.at_work():
            async with vitals.watched(max(1.0, lasts_s / _SAMPLES)):
                await work.run(given.tasks, chaos)
        lasted_s = time.monotonic() - began
        recovered_s = await work.recover()
        await work.settle()
        stats, status = store.stats(), await store.status()
    print(f"{work.done} operations of {given.tasks} tasks in {lasted_s:.0f} s")
    for what, count in work.counts.most_common():
        print(f"  {what}: {count}")
    print(f"{work.history.verified_bytes / MiB:.0f} MiB verified")
    print(vitals.table())
    for name, count in sorted(chaos.struck.items()):
        print(f"  {name}: {count} times")
    for name, tier in stats.tiers.items():
        given_up = status["tiers"][name]["times_given_up"]
        print(f"{name}: given up {given_up} times; fences: {status['tiers'][name]['fences']}")
        outcomes = sorted(tier.outcomes.items())
        print("  " + ", ".join(f"{op} {outcome} {n}" for (op, outcome), n in outcomes))
    print(f"all tiers well again {recovered_s:.1f} s after the last fault")
    return [*work.history.wrong, *chaos.errors, *vitals.growth()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("operations", nargs="?", type=int, default=100_000, metavar="OPERATIONS")
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long at least")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loop", choices=_LOOPS, default="asyncio")
    parser.add_argument("--integrity", choices=("checksum", "size"), default="checksum")
    parser.add_argument("--write-back", action="store_true")
    given = parser.parse_args(arguments)
    kind, options = _LOOPS[given.loop]
    give_back()
    with tempfile.TemporaryDirectory(prefix="tieredkv-soak-") as directory:
        root = Path(directory)
        prepare_environment(root / "home")
        corrupts = given.integrity == "checksum"
        # What the vendors keep for the whole process.
        with _media(root / "warm-up", corrupts=corrupts) as media:
            anyio.run(_warm_up, media, backend=kind, backend_options=options)
        with LeakCheck() as leaks, _media(root / "media", corrupts=corrupts) as media:
            wrong = anyio.run(soak, media, leaks, given, backend=kind, backend_options=options)
    print(f"{len(wrong)} wrong; 0 leases, threads, descriptors, clients left behind")
    for what in wrong[:100]:
        print(f"  WRONG: {what}", file=sys.stderr)
    sys.exit(bool(wrong))


@contextmanager
def _media(root: Path, *, corrupts: bool) -> Iterator[list[Medium]]:
    with ExitStack() as stack:
        media: list[Medium] = []
        for make in (
            lambda: Directory(root / "disk", capacity_bytes=16 * MiB),
            lambda: Server(maxmemory_bytes=32 * MiB),
            lambda: Hub(root / "hub", corrupts=corrupts),
        ):
            media.append(make())
            stack.callback(media[-1].stop)
        yield media


async def _warm_up(media: Sequence[Medium]) -> None:
    async with TieredStore(8 * MiB, [medium.backend() for medium in media]) as store:
        await store.put("key", bytes(100_000))
        await store.flush()


if __name__ == "__main__":
    main()
