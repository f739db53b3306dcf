"""`TieredStore` over Valkey beside the clients of `benchmarks.peer_clients`, against one server.

All have as many connections, and the values live on the server as long. py-key-value, which has to
go through JSON, is left out of batches above 8 MiB: it takes ten times as long. Where tasks load
one value after the other, blocking clients do it in threads, one for each connection at most, and
the store does it on three loops.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import anyio

from benchmarks import peer_clients
from benchmarks.contenders import LOOPS, Operation, Store, compare
from benchmarks.peer import AsyncClient, BlockingClient, Client, Load, Plan
from benchmarks.peer_clients import CONNECTIONS, TTL_S
from benchmarks.runner import Options, Report
from tieredkv import TieredStore
from tieredkv.backends import ValkeyBackend
from tieredkv.config import KiB, MiB
from tieredkv.testing.valkey import RawConnection, ValkeyServer

_SIZES: Final = (1 * KiB, 64 * KiB, 1 * MiB, 4 * MiB, 10 * MiB)
_BATCHES: Final = (32, 256)
_TASKS: Final = {1: _SIZES, 8: (64 * KiB, 1 * MiB), 64: (64 * KiB, 1 * MiB)}
_MOST_BYTES: Final = 256 * MiB
_MOST_ONE_BY_ONE_BYTES: Final = 64 * MiB
_MOST_JSON_BYTES: Final = 8 * MiB


def run(options: Options) -> Iterator[Report]:
    """Measure loads and stores of batches, and loads by tasks on three loops."""
    kinds: list[type[Client]] = [*peer_clients.BLOCKING, *peer_clients.ASYNC, *peer_clients.JSON]
    for kind in kinds:
        if reason := kind.missing():
            print(f"without {kind.name}: {reason}", file=sys.stderr)
    for nbytes in (64 * KiB,) if options.quick else _SIZES:
        most = 8 if options.quick else _MOST_BYTES // nbytes
        first, *more = dict.fromkeys(min(count, most) for count in _BATCHES)
        yield anyio.run(_batch, options, Load(nbytes, first, "size@"), "load")
        yield anyio.run(_batch, options, Load(nbytes, first, "size@"), "store")
        for count in more:
            yield anyio.run(_batch, options, Load(nbytes, count, "size@"), "load")
        for tasks in (1, 8) if options.quick else _TASKS:
            if nbytes not in _TASKS[tasks]:
                continue
            count = min(max(32, 2 * tasks), max(tasks, _MOST_ONE_BY_ONE_BYTES // nbytes), most)
            yield anyio.run(_tasks, options, Load(nbytes, count, "size@"), tasks)


async def _batch(options: Options, load: Load, operation: Operation) -> Report:
    title = f"Valkey peers: {operation} of {load}, {CONNECTIONS} connections"
    plan = Plan.batch(load, CONNECTIONS)
    return await _compare(options, load, plan, operation, title=title, loops=["asyncio"])


async def _tasks(options: Options, load: Load, tasks: int) -> Report:
    who = f"{tasks} tasks" if tasks > 1 else "one task"
    title = f"Valkey peers: {who} loading {load} one by one, {CONNECTIONS} connections"
    plan = Plan.one_by_one(load, tasks, CONNECTIONS)
    return await _compare(options, load, plan, "load", title=title, loops=list(LOOPS))


async def _compare(
    options: Options,
    load: Load,
    plan: Plan,
    operation: Operation,
    *,
    title: str,
    loops: Sequence[str],
) -> Report:
    kinds: list[type[BlockingClient | AsyncClient]] = [*peer_clients.BLOCKING, *peer_clients.ASYNC]
    if load.nbytes * len(load.keys) <= _MOST_JSON_BYTES:
        kinds += peer_clients.JSON
    with ValkeyServer() as server, RawConnection(("127.0.0.1", server.port)) as raw:
        stores = [Store("TieredStore, size", _store(server, load, "size"))]
        for loop in loops:
            name = "TieredStore" if loop == "asyncio" else f"TieredStore, {loop}"
            stores.append(Store(name, _store(server, load, "checksum"), loop))
        return await compare(
            options,
            load,
            plan,
            operation,
            title=title,
            clients=[kind(load, server.port) for kind in kinds if not kind.missing()],
            stores=stores,
            forget=lambda: raw.command("DEL", *load.keys),
        )


def _store(server: ValkeyServer, load: Load, mode: Literal["size", "checksum"]) -> TieredStore:
    backend = ValkeyBackend(server.url, key_prefix=mode, num_workers=CONNECTIONS, ttl_s=TTL_S)
    return TieredStore(load.l1(), [backend], integrity=mode)
