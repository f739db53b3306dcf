"""``python -m benchmarks.valkey_recovery [FAULT ...] [--times N]``: how long outages last.

Each fault strikes real servers while three tasks write and read 12 values of 1 to 300 KiB. What is
printed, as medians with the longest in brackets: when the first failure was answered, counted from
the fault; when the last one was, and when all values could be written and then read, counted from
the cure, or from the fault where a cluster cures itself. All of it includes the request timeout,
since a request sent during an outage waits for that long.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import attrs

if not __package__:  # as a script it measures the checkout that it is in
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tieredkv.backends import ValkeyBackend
from tieredkv.testing.load import Load, under_load
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer, key_slot

REQUEST_TIMEOUT_S: Final = 1.0
OUTAGE_S: Final = 1.5
_PATIENCE_S: Final = 120.0


@attrs.frozen(kw_only=True)
class Strike:
    """One fault of one run.

    Attributes:
        backend: The backend under load, not open yet.
        strike: Causes the fault.
        cure: Ends it; None: it ends by itself.
    """

    backend: ValkeyBackend
    strike: Callable[[], object]
    cure: Callable[[], object] | None = None


Fault: TypeAlias = Callable[[], AbstractContextManager[Strike]]


_standalone: Final = partial(ValkeyBackend, request_timeout_s=REQUEST_TIMEOUT_S, num_workers=4)
_clustered: Final = partial(_standalone, mode="cluster")


@contextmanager
def server_killed() -> Iterator[Strike]:
    with ValkeyServer() as server:
        yield Strike(backend=_standalone(server.url), strike=server.kill, cure=server.restart)


@contextmanager
def server_paused() -> Iterator[Strike]:
    with ValkeyServer() as server:
        yield Strike(backend=_standalone(server.url), strike=server.pause, cure=server.resume)


@contextmanager
def connections_cut() -> Iterator[Strike]:
    with ValkeyServer() as server:
        yield Strike(backend=_standalone(server.url), strike=server.drop_clients)


@contextmanager
def commands_held_back() -> Iterator[Strike]:
    with ValkeyServer() as server:
        yield Strike(
            backend=_standalone(server.url),
            strike=lambda: server.command("CLIENT", "PAUSE", 60_000, "WRITE"),
            cure=lambda: server.command("CLIENT", "UNPAUSE"),
        )


@contextmanager
def memory_full() -> Iterator[Strike]:
    with ValkeyServer() as server:
        yield Strike(
            backend=_standalone(server.url),
            strike=lambda: server.command("CONFIG", "SET", "maxmemory", 1),
            cure=lambda: server.command("CONFIG", "SET", "maxmemory", 0),
        )


@contextmanager
def password_changed() -> Iterator[Strike]:
    with ValkeyServer(password="old") as server:

        def change() -> None:
            server.change_password("new")
            server.drop_clients()

        yield Strike(
            backend=_standalone(server.url, password="old"),
            strike=change,
            cure=lambda: server.change_password("old"),
        )


@contextmanager
def demoted() -> Iterator[Strike]:
    with ValkeyServer() as server, ValkeyServer() as primary:
        yield Strike(
            backend=_standalone(server.url),
            strike=lambda: server.command("REPLICAOF", "127.0.0.1", primary.port),
            cure=lambda: server.command("REPLICAOF", "NO", "ONE"),
        )


@contextmanager
def _cluster() -> Iterator[tuple[ValkeyCluster, ValkeyBackend, ValkeyServer]]:
    with ValkeyCluster(node_timeout_ms=1000) as cluster:
        backend = _clustered(cluster.urls)
        yield cluster, backend, cluster.primary_of(Load(backend).names[0])


@contextmanager
def cluster_primary_killed() -> Iterator[Strike]:
    with _cluster() as (_, backend, primary):
        yield Strike(backend=backend, strike=primary.kill)


@contextmanager
def cluster_primary_paused() -> Iterator[Strike]:
    with _cluster() as (_, backend, primary):
        yield Strike(backend=backend, strike=primary.pause)


@contextmanager
def cluster_slot_moved() -> Iterator[Strike]:
    with _cluster() as (cluster, backend, primary):
        slot = key_slot(Load(backend).names[0])
        other = next(node for node in cluster.primaries() if node is not primary)
        yield Strike(backend=backend, strike=lambda: cluster.move_slots(slot, slot, other))


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        server_killed,
        server_paused,
        connections_cut,
        commands_held_back,
        memory_full,
        password_changed,
        demoted,
        cluster_primary_killed,
        cluster_primary_paused,
        cluster_slot_moved,
    )
}


@attrs.frozen(kw_only=True)
class Outage:
    """What one fault did; seconds.

    Attributes:
        first_s: From the fault to the first failure; None: there was none.
        last_s: From the cure to the last failure; None: there was none after it.
        recovered_s: From the cure to all values written and read.
        failures: Failed answers of writes and reads.
        answers: All answers.
    """

    first_s: float | None
    last_s: float | None
    recovered_s: float
    failures: int
    answers: int


async def suffer(strike: Strike) -> Outage:
    """Let one fault strike, and watch."""
    await strike.backend.open()
    try:
        async with under_load(strike.backend) as load:
            began = cured = time.monotonic()
            strike.strike()
            if strike.cure is not None:
                await anyio.sleep(max(0.0, began + OUTAGE_S - time.monotonic()))
                cured = time.monotonic()
                strike.cure()
            await load.recovered(patience_s=_PATIENCE_S)
            recovered_s = time.monotonic() - cured
        failed = [moment for moment in load.failed_at_s if moment > began]
        return Outage(
            first_s=failed[0] - began if failed else None,
            last_s=failed[-1] - cured if failed and failed[-1] > cured else None,
            recovered_s=recovered_s,
            failures=load.failures.total(),
            answers=load.num_answers,
        )
    finally:
        await strike.backend.aclose()


def main(arguments: Sequence[str] | None = None) -> None:
    """Let faults strike and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.valkey_recovery")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="how often each")
    given = parser.parse_args(arguments)
    if unknown := set(given.faults) - set(FAULTS):
        parser.error(f"no fault is called {unknown.pop()!r}: choose from {', '.join(FAULTS)}")
    print(f"request timeout {REQUEST_TIMEOUT_S} s; cured after {OUTAGE_S} s where not by itself")
    titles = "first failure s", "last failure s", "recovered s", "failed answers"
    print(f"{'':24}" + "".join(f"{title:>20}" for title in titles))
    for name in given.faults or FAULTS:
        outages: list[Outage] = []
        for _ in range(given.times):
            with FAULTS[name]() as strike:
                outages.append(anyio.run(suffer, strike))
        cells = (
            _seconds([outage.first_s for outage in outages]),
            _seconds([outage.last_s for outage in outages]),
            _seconds([outage.recovered_s for outage in outages]),
            f"{sum(o.failures for o in outages)} of {sum(o.answers for o in outages)}",
        )
        print(f"{name:24}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    print("wrong bytes, failures without a name: 0")  # under_load raises otherwise


def _seconds(found: Sequence[float | None]) -> str:
    known = [value for value in found if value is not None]
    return f"{statistics.median(known):.2f} ({max(known):.2f})" if known else "-"


if __name__ == "__main__":
    main()
