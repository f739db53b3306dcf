"""Requests through the whole store: what each tier answers, how long requests take, no wrong byte.

Each request looks up its chain of chunks, leases those that are known and puts the others, as
`tieredkv demo` does, with values of 64 KiB of which every byte is compared when it comes and again
before its lease ends. The requests are those of ``--trace FILE`` (JSON lines as
`benchmarks.simulate` reads them), or the demo's synthetic chat. Of more than 1,500 distinct chunks
(``--chunks N``: of more than N) a sample of as many is asked for, by those requests that did, so
that a trace takes half a minute: requests are shorter, but what is asked for again, and after how
much else, is as in the whole (C. Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST
2015).

L1 has room for 5 % of the distinct chunks, a disk below it for 20 %, Valkey below that for 80 %.
The subjects are L1 alone, over the disk, and over both; each pass starts with empty tiers. With
``--recompute-ms`` a figure says how much of the time to compute all chunks is left; without it,
computing a missing chunk takes no time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

import anyio
import attrs

from benchmarks.runner import Figure, Options, Pass, Report, Subject, paired
from tieredkv import TieredStore, WriteThrough
from tieredkv.cli.contents import Contents
from tieredkv.cli.faults import outcomes_of
from tieredkv.cli.media import MEDIA
from tieredkv.cli.replay import COMPUTED, WINDOW_SHARE_OF_L1, Replay, Tally
from tieredkv.cli.trace import read_trace
from tieredkv.cli.workload import Request, chat
from tieredkv.config import KiB, MiB
from tieredkv.observe import Histogram

_VALUE_BYTES: Final = 64 * KiB
_MOST_CHUNKS: Final = 1_500
_CHAT_REQUESTS: Final = 400
_LEAST_L1_BYTES: Final = 4 * MiB
_SHARES: Final = {"l1": 0.05, "disk": 0.2, "valkey": 0.8}
_TIERS: Final = ((), ("disk",), ("disk", "valkey"))


def run(options: Options) -> Iterator[Report]:
    """Replay each trace, or the chat."""
    traces = [(path.name.partition(".")[0], read_trace(path)) for path in options.traces]
    if not traces:
        count = 20 if options.quick else _CHAT_REQUESTS
        traces = [("a chat that is made up", list(islice(chat(0), count)))]
    for name, trace in traces:
        most = options.chunks or (200 if options.quick else _MOST_CHUNKS)
        yield anyio.run(_compare, options, name, trace, most)


def _sample(trace: Sequence[Request], most: int) -> Sequence[Request]:
    """Return what is asked for of a trace: at most so many distinct chunks."""
    distinct = sorted({chunk for request in trace for chunk in request.chunks})
    if len(distinct) <= most:
        return trace
    kept = set(Random(0).sample(distinct, most))
    runs = ([range(chunk, chunk + 1) for chunk in of.chunks if chunk in kept] for of in trace)
    return [
        Request(request.time_s, tuple(run)) for request, run in zip(trace, runs, strict=True) if run
    ]


@attrs.define
class Outcome:
    """What came of the last pass over some tiers.

    Attributes:
        tally: What was served.
        durations: Of the requests.
        corrupt: Copies that a tier answered with, and the store did not hand out.
    """

    tally: Tally
    durations: Histogram
    corrupt: int


class Replayed:
    """A store over some tiers that serves the requests, in each pass with all tiers empty."""

    def __init__(self, tiers: Sequence[str], requests: Sequence[Request], nbytes: int) -> None:
        self.name = " + ".join(["L1", *tiers])
        self.outcome: Outcome | None = None
        self._tiers = tiers
        self._requests = requests
        self._sizes = {tier: int(share * nbytes) for tier, share in _SHARES.items()}
        self._contents = Contents(0, _VALUE_BYTES)

    async def run(self) -> Pass:
        l1_bytes = max(self._sizes["l1"], _LEAST_L1_BYTES)
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            media = [MEDIA[tier](root, self._sizes[tier]) for tier in self._tiers]
            backends = [stack.enter_context(medium.running()) for medium in media]
            async with TieredStore(
                l1_bytes,
                backends,
                write_policy=WriteThrough(require="all"),  # the same writes in every pass
                max_pending=max(1, len(backends)) * l1_bytes // WINDOW_SHARE_OF_L1,
            ) as store:
                replay = Replay(
                    store, self._contents, tiers=["l1", *self._tiers], l1_bytes=l1_bytes
                )
                durations = Histogram()
                await replay.run(_timed(self._requests, durations))
                outcomes = outcomes_of(store.stats()).values()
        corrupt = sum(answers.get("read", {}).get("corrupt", 0) for answers in outcomes)
        self.outcome = Outcome(replay.tally, durations, corrupt)
        return Pass(len(self._requests), replay.tally.elapsed_s)

    def figures(self, recompute_s: float | None) -> Iterator[Figure]:
        """Yield what the last pass shows."""
        assert self.outcome is not None
        tally, durations = self.outcome.tally, self.outcome.durations
        for tier, traffic in tally.traffic.items():
            what = tier if tier == COMPUTED else f"hits in {tier}"
            yield Figure(f"{self.name}: {what}", 100 * traffic.chunks / tally.chunks, "%")
        for fraction in (0.5, 0.99):
            yield Figure(
                f"{self.name}: a request, p{fraction * 100:.0f}",
                durations.quantile(fraction) * 1e3,
                "ms",
            )
        verified = sum(traffic.verified_bytes for traffic in tally.traffic.values())
        yield Figure(f"{self.name}: verified", verified / MiB, "MiB")
        wrong = tally.wrong_values + self.outcome.corrupt
        yield Figure(f"{self.name}: wrong values", wrong, "", at_most=0)
        if recompute_s is not None:
            left_s = tally.elapsed_s + recompute_s * tally.traffic[COMPUTED].chunks
            yield Figure(
                f"{self.name}: time, of that to compute all", left_s / (recompute_s * tally.chunks)
            )


def _timed(requests: Iterable[Request], durations: Histogram) -> Iterator[Request]:
    for request in requests:
        began = time.perf_counter()
        yield request
        durations.record(time.perf_counter() - began)


async def _compare(
    options: Options, name: str, trace: Sequence[Request], most_chunks: int
) -> Report:
    requests = _sample(trace, most_chunks)
    chunks = [chunk for request in requests for chunk in request.chunks]
    distinct = len(set(chunks))
    stores = [Replayed(tiers, requests, distinct * _VALUE_BYTES) for tiers in _TIERS]
    subjects = [Subject(store.name, store.run) for store in stores]
    result = await paired(subjects, rounds=options.rounds_or(3), warmup=0)
    alone, *others = (store.name for store in stores)
    recompute_s = None if options.recompute_ms is None else options.recompute_ms / 1000
    told = (
        f"{len(requests):,} requests for {len(chunks):,} chunks, {distinct:,} of them distinct"
        + ", a sample" * (requests is not trace)
        + f", {_VALUE_BYTES // KiB} KiB each"
        + (f", {options.recompute_ms:g} ms to compute one" if options.recompute_ms else "")
    )
    return Report(
        f"Replay of {name}: {told}",
        result.rows(),
        [
            *(figure for store in stores for figure in store.figures(recompute_s)),
            *(result.ratio(other, alone) for other in others),
        ],
        panel=f"{name}: where the chunks come from",
    )
