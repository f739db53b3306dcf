"""Programs over the whole store that end, fork or are interrupted in mid-flight.

``python -m tests.store_tiers.programs NAME LOOP ROOT URL``, see `started`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import inspect
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import numpy as np
from anyio.lowlevel import checkpoint

from tests.forking import fork_and_run
from tests.store.inside import inside
from tieredkv import GetStatus, MemoryObject, TieredStore
from tieredkv.backends import Backend, DiskBackend, ValkeyBackend
from tieredkv.config import KiB
from tieredkv.testing.content import content, gist

LOOPS: Final[dict[str, dict[str, Any]]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
KEYS: Final = tuple(f"key-{number}" for number in range(24))

_TIMEOUT_S: Final = 100.0


def value_of(key: str) -> bytes:
    """Return the one value that a key ever has; from 1 to 300 KiB."""
    return content(key, (1 + int(key.rpartition("-")[2]) * 13 % 300) * KiB)


def store_over(root: str, url: str) -> TieredStore:
    backends: list[Backend] = [
        DiskBackend(root),
        ValkeyBackend(url, request_timeout_s=5.0, num_workers=2),
    ]
    return TieredStore("4MiB", backends)


async def use(store: TieredStore, seed: int, rounds: int) -> None:
    """Put, get and delete; every byte that comes is the right one."""
    chance = random.Random(seed)
    for _ in range(rounds):
        some = chance.sample(KEYS, 6)
        match chance.randrange(4):
            case 0:
                await store.put_many([(key, value_of(key)) for key in some])
            case 1:
                await store.delete_many(some[:1])
                inside(store).l1.clear()
            case _:
                with await store.get_many(some) as results:
                    for result in results:
                        assert result.status in (GetStatus.HIT, GetStatus.MISS), result.error
                        if result.object is not None:
                            key = str(result.key)
                            assert gist(bytes(result.object)) == gist(value_of(key))


@asynccontextmanager
async def in_use(store: TieredStore) -> AsyncIterator[None]:
    """Use a store in four tasks for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        for seed in range(4):
            tasks.start_soon(use, store, seed, 1_000_000)
        yield
        tasks.cancel_scope.cancel()


async def in_full_swing(store: TieredStore) -> None:
    """Wait until workers of every tier are under way."""
    backends = [tier.backend for tier in inside(store).tiers]
    assert all(isinstance(backend, DiskBackend | ValkeyBackend) for backend in backends)
    while not all(backend._workers.num_running for backend in backends):  # type: ignore[attr-defined]
        await checkpoint()


# -- programs ------------------------------------------------------------------------------------


async def fork(root: str, url: str) -> None:
    """Fork while operations run; the children open stores of their own, and all go on."""

    async def be_a_child() -> None:
        async with store_over(root, url) as store:
            await use(store, os.getpid(), 20)

    async with store_over(root, url) as store:
        await store.put_many([(key, value_of(key)) for key in KEYS])
        async with in_use(store):
            for _ in range(3):
                await in_full_swing(store)
                fork_and_run(be_a_child)
        await use(store, 99, 50)


async def leave(root: str, url: str) -> None:
    """End without closing the store, while tasks use it."""
    store = await store_over(root, url).__aenter__()
    async with in_use(store):
        await in_full_swing(store)


async def stay(root: str, url: str) -> None:
    """Say when the store is in full swing, and use it until a signal comes."""
    async with store_over(root, url) as store, in_use(store):
        await in_full_swing(store)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


def close_loop(root: str, url: str) -> None:
    """Close an event loop in mid-flight, then go on with another one."""

    async def begin() -> TieredStore:
        store = await store_over(root, url).__aenter__()
        tasks.extend(asyncio.create_task(use(store, seed, 1_000_000)) for seed in range(4))
        await in_full_swing(store)
        return store

    async def go_on() -> None:
        async with store_over(root, url) as store:
            await use(store, 99, 50)

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    anyio.run(go_on)


def two_loops(root: str, url: str) -> None:
    """Use a directory and a server from two stores, on two loops, in two threads."""

    async def share(seed: int) -> None:
        async with store_over(root, url) as store:
            both.wait()
            await use(store, seed, 150)

    def run(seed: int, loop: str) -> None:
        anyio.run(share, seed, **LOOPS[loop])
        ended.append(seed)

    both = threading.Barrier(2)
    ended: list[int] = []
    threads = [threading.Thread(target=run, args=(n, ("asyncio", "trio")[n])) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1]


class _Cycle:
    """Something that only the garbage collector frees."""

    def __init__(self, kept: object) -> None:
        self.kept = kept
        self.itself = self


async def collect_at_every_allocation(root: str, url: str) -> None:
    """Load values while four threads release leases, or lose them in cycles."""
    warnings.simplefilter("ignore", ResourceWarning)  # of the leases that are lost on purpose
    inboxes: list[list[MemoryObject]] = [[], [], [], []]
    stop = threading.Event()
    wrong: list[str] = []
    async with store_over(root, url) as store:
        await store.put_many([(key, value_of(key)) for key in KEYS])
        await store.flush()
        threads = [threading.Thread(target=_let_go, args=(inbox, stop, wrong)) for inbox in inboxes]
        with _collecting():
            for thread in threads:
                thread.start()
            chance = random.Random(7)
            for number in range(60):
                if number % 3 == 0:
                    inside(store).l1.clear()
                if number % 6 == 0:  # so that it comes from the server
                    await inside(store).tiers[0].delete_many(KEYS)
                for result in await store.get_many(chance.sample(KEYS, 8)):
                    if result.object is not None:
                        inboxes[number % 4].append(result.object)
                    del result
            stop.set()
            while any(thread.is_alive() for thread in threads):
                await checkpoint()
        gc.collect()
        stats = store.stats()
        assert (stats.l1.leases, stats.blocks_held_by_views) == (0, 0), stats
        assert stats.tiers["disk"].outcomes["read", "hit"] > 0
        assert stats.tiers["valkey"].outcomes["read", "hit"] > 0
    assert wrong == []


def _let_go(inbox: list[MemoryObject], stop: threading.Event, wrong: list[str]) -> None:
    chance = random.Random(threading.get_ident())
    while not stop.is_set() or inbox:
        if not inbox:
            continue
        lease = inbox.pop()
        if gist(np.frombuffer(lease.view, np.uint8).tobytes()) != gist(value_of(str(lease.key))):
            wrong.append(str(lease.key))
        if chance.random() < 0.5:
            _Cycle(lease.view[5:])
            lease.release()
        else:
            _Cycle(lease)
        del lease


@contextmanager
def _collecting() -> Iterator[None]:
    """Let the garbage collector run at every allocation, and threads take turns all the time."""
    before = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()  # what was there before costs nothing
    gc.set_threshold(1)
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])
        gc.unfreeze()


Program: TypeAlias = Callable[[str, str], Any]
PROGRAMS: Final[dict[str, Program]] = {
    program.__name__: program
    for program in (fork, leave, stay, close_loop, two_loops, collect_at_every_allocation)
}


def started(
    program: Program, root: Path, url: str, *, loop: str = "asyncio"
) -> subprocess.Popen[str]:
    """Start a program."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, program.__name__, loop, str(root), url],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a program's end; return its exit status and what it has complained of."""
    with process:
        try:
            _, complained = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    return process.returncode, complained


def main(name: str, loop: str, root: str, url: str) -> None:
    program = PROGRAMS[name]
    try:
        if inspect.iscoroutinefunction(program):
            anyio.run(partial(program, root, url), **LOOPS[loop])
        else:
            program(root, url)
    except* KeyboardInterrupt:  # on trio it comes in groups
        pass


if __name__ == "__main__":
    faulthandler.enable()
    main(*sys.argv[1:])
