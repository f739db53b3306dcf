"""``python benchmarks/simulate.py FILE``: hit ratios of eviction policies on a trace of requests.

The trace is JSON lines, plain or gzipped, one request a line: ``[time_s, [[first_id, run_length],
...]]``. All chunks have one size; a capacity is a percentage of the trace's distinct ids. A policy
is driven as a store drives it whose user gets the chunks of a request and then puts those that it
lacks: what was held is noted as read from last to first, what was not is inserted from last to
first, an eviction making room for each, and in the end the whole request is refreshed. ``min``
beside them is the ceiling, Belady's clairvoyant policy; it is given every chunk by itself, head
first, and counts all that are held.

Hits are those of the *prefix*, the leading chunks up to the first that is not held, if in the trace
every id follows one and the same id wherever it occurs: then an id stands for all before it, too.
Otherwise every *chunk* that is held when the request comes is a hit.

``python -m benchmarks simulate --trace FILE`` takes several files, and without one it makes up a
chat. The constants of ``default`` were picked on the public traces that its target is for:
mooncake_conversation and mooncake_synthetic (made of kvcache-ai/Mooncake), ragpulse_chunk
(flashserve/RAGPulse) and agentic_local (callanjfox/kv-cache-tester).
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Final, Literal, TypeAlias, get_args

if not __package__:  # as a script it measures the checkout that it is in
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report import Figure, Report
from benchmarks.runner import Options
from tieredkv.cli.trace import TraceError, read_trace
from tieredkv.cli.workload import chat
from tieredkv.pool.eviction import EvictionPolicy, PolicyName, make_policy

Hits: TypeAlias = Literal["prefix", "chunk"]
Chain: TypeAlias = list[int]

_MIN: Final = "min"
_NEVER: Final = 2**62
_POLICIES: Final[tuple[PolicyName, ...]] = ("default", "arc", "s3fifo", "lru")
_CAPACITIES: Final = (1, 2, 5, 10, 20)
_CHAT_REQUESTS: Final = 2_400
_TARGET: Final = 0.685
_TARGET_TRACES: Final = frozenset(
    ("mooncake_conversation", "mooncake_synthetic", "ragpulse_chunk", "agentic_local")
)


def run(options: Options) -> Iterator[Report]:
    """Compare policies on the traces, and their means over all of them."""
    limit = 100 if options.quick else None
    traces = {
        path.name.partition(".")[0]: [request.chunks for request in read_trace(path, limit)]
        for path in options.traces
    }
    if not traces:
        requests = islice(chat(seed=0), limit or _CHAT_REQUESTS)
        traces["a chat that is made up"] = [request.chunks for request in requests]
    of_min: dict[str, list[float]] = {name: [] for name in _POLICIES}
    for trace, chains in traces.items():
        distinct = len({chunk for chain in chains for chunk in chain})
        hits = natural_hits(chains)
        for percentage in _CAPACITIES:
            capacity = max(1, distinct * percentage // 100)
            ceiling = belady(chains, capacity)
            ratios = {name: replay(chains, make_policy(name), capacity, hits) for name in _POLICIES}
            for name, ratio in ratios.items():
                of_min[name].append(ratio / ceiling if ceiling else 1.0)
            yield Report(
                f"Hits on {trace}, room for {percentage} % of its chunks",
                (),
                [Figure(name, of, "hit ratio") for name, of in [*ratios.items(), (_MIN, ceiling)]],
                panel=f"{trace}, by the room for its chunks",
                label=f"{percentage} %",
            )
    targets = {"default": _TARGET if traces.keys() == _TARGET_TRACES else None}
    means = [
        Figure(name, mean(of), "of min", at_least=targets.get(name)) for name, of in of_min.items()
    ]
    yield Report("Hits as a part of the ceiling, mean", (), means, panel="mean of all")


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay a trace and print hit ratios, as a table or as JSON."""
    parser = argparse.ArgumentParser(
        prog="simulate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--capacity",
        type=_percentages,
        default="1,2,5,10,20",
        metavar="LIST",
        help="percentages of the distinct ids, with commas (default: %(default)s)",
    )
    parser.add_argument(
        "--policy",
        type=_policies,
        default="default",
        metavar="LIST",
        help=f"with commas, of {', '.join(get_args(PolicyName))} (when left out: default)",
    )
    parser.add_argument("--hits", choices=get_args(Hits), help="what counts, whatever the trace")
    parser.add_argument("--json", action="store_true", help="print {policy: [ratio, ...], ...}")
    given = parser.parse_args(arguments)
    try:
        chains = [request.chunks for request in read_trace(given.file)]
    except TraceError as error:
        parser.error(str(error))
    distinct = len({chunk for chain in chains for chunk in chain})
    capacities = [max(1, int(distinct * percentage / 100)) for percentage in given.capacity]
    hits: Hits = given.hits or natural_hits(chains)
    ratios = {
        name: [replay(chains, make_policy(name), capacity, hits) for capacity in capacities]
        for name in given.policy
    }
    ratios[_MIN] = [belady(chains, capacity) for capacity in capacities]
    if given.json:
        print(json.dumps({name: [round(r, 6) for r in row] for name, row in ratios.items()}))
    else:
        accesses = sum(map(len, chains))
        print(f"{len(chains)} requests, {accesses} accesses, {distinct} distinct, {hits} hits")
        print(_table(ratios, given.capacity))


def replay(chains: Sequence[Chain], policy: EvictionPolicy, capacity: int, hits: Hits) -> float:
    """Return the hit ratio of a policy that may hold `capacity` chunks."""
    names = {chunk: str(chunk) for chain in chains for chunk in chain}
    held: set[str] = set()
    num_hits = 0
    for chain in chains:
        request = [names[chunk] for chunk in chain]
        if hits == "prefix":
            missed = next((i for i, name in enumerate(request) if name not in held), len(request))
            found, others = request[:missed], request[missed:]
        else:
            found = [name for name in request if name in held]
            others = [name for name in request if name not in held]
        num_hits += len(found)
        policy.access_chain(found)
        for name in reversed(others):
            if name not in held:
                if len(held) == capacity:
                    victim = next(policy.victims(), None)
                    if victim is None:
                        continue
                    policy.remove(victim, evicted=True)
                    held.remove(victim)
                held.add(name)
            policy.insert(name)
        policy.refresh_chain(request)
    return num_hits / sum(map(len, chains))


def belady(chains: Sequence[Chain], capacity: int) -> float:
    """Return the hit ratio of evicting whatever is needed again last.

    Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
    Journal 5 (1966).
    """
    accesses = [chunk for chain in chains for chunk in chain]
    next_use = [_NEVER] * len(accesses)
    seen: dict[int, int] = {}
    for at in range(len(accesses) - 1, -1, -1):
        next_use[at] = seen.get(accesses[at], _NEVER)
        seen[accesses[at]] = at
    held: dict[int, int] = {}  # chunk to next use
    latest: list[tuple[int, int]] = []  # (-next use, chunk); outdated ones stay until they surface
    num_hits = 0
    for chunk, then in zip(accesses, next_use, strict=True):
        num_hits += chunk in held
        held[chunk] = then
        heapq.heappush(latest, (-then, chunk))
        while len(held) > capacity:
            negative, candidate = heapq.heappop(latest)
            if held.get(candidate) == -negative:
                del held[candidate]
    return num_hits / len(accesses)


def natural_hits(chains: Sequence[Chain]) -> Hits:
    """Return what counts as a hit: prefixes if every id always follows the same id."""
    before: dict[int, int | None] = {}
    for chain in chains:
        previous: int | None = None
        for chunk in chain:
            if before.setdefault(chunk, previous) != previous:
                return "chunk"
            previous = chunk
    return "prefix"


def _percentages(text: str) -> list[float]:
    percentages = [float(part) for part in text.split(",")]
    if not all(0 < percentage <= 100 for percentage in percentages):
        raise argparse.ArgumentTypeError(f"{text} must be above 0 and at most 100")
    return percentages


def _policies(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in get_args(PolicyName):
            raise argparse.ArgumentTypeError(
                f"no policy is called {name!r}: choose from {', '.join(get_args(PolicyName))}"
            )
    return names


def _table(ratios: dict[str, list[float]], capacities: Sequence[float]) -> str:
    lines = ["policy".ljust(14) + "".join(f"{c:g} %".rjust(8) for c in capacities) + "  of min"]
    for name, row in ratios.items():
        of_min = [r / best if best else 1.0 for r, best in zip(row, ratios[_MIN], strict=True)]
        mean = sum(of_min) / len(of_min)
        lines.append(name.ljust(14) + "".join(f"{r:8.3f}" for r in row) + f"{mean:8.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
