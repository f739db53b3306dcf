"""Who is compared in the benchmarks of peers: other people's clients, and our store, alike.

A contender stores and loads the same values. Threads or tasks of a client take groups of them in
turns, as many at a time as it has connections, and what comes back stays as it is: nothing is
decoded, copied into place or checked. The store is given keys and sizes, lands the bytes in its L1
(which is emptied after each pass) and leases them; in "checksum" it has verified them, too. What
was loaded lives until the clock has stopped.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import anyio
import attrs
from anyio.from_thread import BlockingPortal, start_blocking_portal

from benchmarks.peer import AsyncClient, BlockingClient, Client, Load, Plan
from benchmarks.runner import Figure, Options, Paired, Pass, Report, Subject, paired
from tieredkv import TieredStore
from tieredkv.config import MiB

__all__ = ["LOOPS", "Operation", "Store", "compare"]

Operation: TypeAlias = Literal["load", "store"]
Seen: TypeAlias = Callable[[slice, Sequence[Any]], None]

LOOPS: Final[Mapping[str, tuple[str, dict[str, bool]]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
_PASSES_BYTES: Final = 768 * MiB  # moved by a contender in a report, but the rounds are …
_ROUNDS: Final = (5, 41)  # … so many at least and at most


@attrs.frozen
class Store:
    """A store to compare, on one of `LOOPS`."""

    name: str
    store: TieredStore
    loop: str = "asyncio"


class _Contender(ABC):
    """Moves all values of its load.

    Attributes:
        name: How the tables call it.
    """

    name: str

    @abstractmethod
    async def move(self, operation: Operation, plan: Plan, seen: Seen | None = None) -> float:
        """Return the seconds it took; `seen` is shown what was loaded when they are over."""


class _Blocking(_Contender):
    """What one thread can do is done in this one, without a hop."""

    def __init__(self, client: BlockingClient, threads: ThreadPoolExecutor) -> None:
        self.name = client.name
        self._client = client
        self._threads = threads

    async def move(self, operation: Operation, plan: Plan, seen: Seen | None = None) -> float:
        call: Callable[[slice], Any] = getattr(self._client, _CALLS[operation])
        left, got = deque(plan.groups), []

        def take() -> None:
            while left:
                try:
                    group = left.popleft()
                except IndexError:  # another thread was faster
                    return
                got.append((group, call(group)))

        workers = min(plan.workers, plan.connections, len(left))
        began = time.perf_counter()
        if workers == 1:
            take()
        else:
            for running in [self._threads.submit(take) for _ in range(workers)]:
                running.result()
        return _over(began, got, seen if operation == "load" else None)


class _Async(_Contender):
    def __init__(self, client: AsyncClient) -> None:
        self.name = client.name
        self._client = client

    async def move(self, operation: Operation, plan: Plan, seen: Seen | None = None) -> float:
        call: Callable[[slice], Awaitable[Any]] = getattr(self._client, _CALLS[operation])
        left, got = deque(plan.groups), []

        async def take() -> None:
            while left:
                group = left.popleft()
                got.append((group, await call(group)))

        began = time.perf_counter()
        await _in_tasks(take, min(plan.workers, len(left)))
        return _over(began, got, seen if operation == "load" else None)


class _Ours(_Contender):
    """The store, on a loop in a thread of its own."""

    def __init__(self, name: str, portal: BlockingPortal, store: TieredStore, load: Load) -> None:
        self.name = name
        self._portal = portal
        self._store = store
        self._keys, self._values = load.object_keys, load.values
        self._sizes = [load.nbytes] * len(load.keys)

    async def move(self, operation: Operation, plan: Plan, seen: Seen | None = None) -> float:
        if operation == "store":
            return self._portal.call(self._put)
        if plan.whole:
            return self._portal.call(self._get_many, seen)
        return self._portal.call(self._get_in_tasks, plan.workers, seen)

    async def _put(self) -> float:
        items = list(zip(self._keys, self._values, strict=True))
        began = time.perf_counter()
        results = await self._store.put_many(items)
        seconds = time.perf_counter() - began
        for result in results:
            result.raise_for_status()
        await self._store.clear()
        return seconds

    async def _get_many(self, seen: Seen | None) -> float:
        began = time.perf_counter()
        results = await self._store.get_many(self._keys, sizes=self._sizes)
        seconds = time.perf_counter() - began
        with results:
            assert all(result.tier not in (None, "l1") for result in results), results
            if seen:
                seen(slice(None), [result.object.view for result in results if result.object])
        await self._store.clear()
        return seconds

    async def _get_in_tasks(self, tasks: int, seen: Seen | None) -> float:
        left, leases = deque(enumerate(self._keys)), []

        async def take() -> None:
            while left:
                at, key = left.popleft()
                lease = await self._store.get(key, size=self._sizes[at])
                assert lease is not None
                leases.append((at, lease))

        began = time.perf_counter()
        await _in_tasks(take, tasks)
        seconds = time.perf_counter() - began
        for at, lease in leases:
            with lease:
                assert lease.tier != "l1"
                if seen:
                    seen(slice(at, at + 1), [lease.view])
        await self._store.clear()
        return seconds


_CALLS: Final[Mapping[Operation, str]] = {"load": "get", "store": "set"}


async def _in_tasks(take: Callable[[], Coroutine[Any, Any, None]], tasks: int) -> None:
    if tasks == 1:
        await take()
        return
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(take)


def _over(began: float, got: Sequence[tuple[slice, Any]], seen: Seen | None) -> float:
    seconds = time.perf_counter() - began
    if seen:
        for group, values in got:
            seen(group, values)
    return seconds


async def compare(
    options: Options,
    load: Load,
    plan: Plan,
    operation: Operation,
    *,
    title: str,
    clients: Sequence[BlockingClient | AsyncClient],
    stores: Sequence[Store],
    forget: Callable[[], None] = lambda: None,
) -> Report:
    """Prove that all of them store and load what they should, then compare an operation.

    Args:
        options: From the command line.
        load: What they move.
        plan: In what pieces.
        operation: What is timed.
        title: Of the report.
        clients: The peers; closed at the end.
        stores: Ours: a first one that checks sizes only, one with checksums, others like it.
        forget: Removes what clients, which may have the same keys, have stored.
    """
    async with AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(plan.connections))
        contenders: list[_Contender] = []
        for client in clients:
            if isinstance(client, BlockingClient):
                client.open()
                stack.callback(client.close)
                contenders.append(_Blocking(client, threads))
            else:
                await client.open()
                stack.push_async_callback(client.aclose)
                contenders.append(_Async(client))
        for store in stores:
            backend, backend_options = LOOPS[store.loop]
            portal = stack.enter_context(start_blocking_portal(backend, backend_options))
            stack.enter_context(portal.wrap_async_context_manager(store.store))
            contenders.append(_Ours(store.name, portal, store.store, load))
        for contender in contenders:
            await _prove(contender, load, plan, forget)
        await contenders[0].move("store", plan)  # what the proofs of others have removed
        subjects = [
            Subject(contender.name, partial(_pass, contender, operation, plan, load), load.nbytes)
            for contender in contenders
        ]
        passes = _PASSES_BYTES // (load.nbytes * len(load.keys))
        rounds = options.rounds_or(max(_ROUNDS[0], min(passes, _ROUNDS[1])))
        result = await paired(subjects, rounds=rounds)
    return Report(title, result.rows(), _figures(result, clients, stores))


async def _pass(contender: _Contender, operation: Operation, plan: Plan, load: Load) -> Pass:
    return Pass(len(load.keys), await contender.move(operation, plan))


async def _prove(contender: _Contender, load: Load, plan: Plan, forget: Callable[[], None]) -> None:
    """Store all values and load them, and compare every byte."""
    for buffer in load.buffers:
        buffer[:] = bytes(buffer.nbytes)
    forget()
    await contender.move("store", plan)
    loaded = 0

    def seen(group: slice, values: Sequence[Any]) -> None:
        nonlocal loaded
        for value, right in zip(values, load.values[group], strict=True):
            assert memoryview(value).tobytes() == right, f"{contender.name} loads wrong bytes"
            loaded += 1

    await contender.move("load", plan, seen)
    assert loaded == len(load.keys), f"{contender.name} loads {loaded} values"


def _figures(result: Paired, clients: Sequence[Client], stores: Sequence[Store]) -> list[Figure]:
    """Return our speed: without checksums beside the others, who have none; then with them."""
    bare, *checked = (store.name for store in stores)
    figures = [result.ratio(bare, client.name, speed=True) for client in clients]
    return figures + [result.ratio(name, bare, speed=True) for name in checked]
