"""Requests, and a seeded generator of chat requests that reuse what real ones reuse."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

__all__ = ["Request", "chat", "distinct_chunks"]

# Calibrated to an hour of chat traffic that the operators of Kimi published with Mooncake (R. Qin
# et al., FAST 2025): 27 % of the chunks that are new in a request come again, the median gap
# between two uses is two minutes, a chain has about 24 chunks. Their service answers three requests
# a second; here it is one in three seconds, so that the reuse of a user meets in a small L1 what
# theirs meets in a large one.
_REQUESTS_PER_S: Final = 1 / 3
_NEXT_TURN: Final = 0.27
_GAP_S: Final = (150.0, 1.0)  # median and sigma of log-normal distributions, here …
_FIRST_TURN_CHUNKS: Final = (12.5, 1.0)  # … and below
_LATER_TURN_CHUNKS: Final = (4.0, 0.8)
_BEGINNING: Final[tuple[range, ...]] = (range(1),)  # the system prompt


@attrs.frozen
class Request:
    """One request: when it came, and its chain of chunks.

    Attributes:
        time_s: Arrival, in seconds from some start.
        runs: The chunk ids, head of the chain first, as runs of consecutive ids.
    """

    time_s: float
    runs: tuple[range, ...]

    @property
    def chunks(self) -> list[int]:
        """The chunk ids of the chain, in order."""
        return list(itertools.chain.from_iterable(self.runs))


def chat(seed: int) -> Iterator[Request]:
    """Yield the requests of users who chat, in order of arrival, without end.

    A turn's chain is that of the conversation's last turn and what is new since. All conversations
    begin with one system prompt. An id therefore stands for a chunk *and* all before it.
    """
    dice = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    upcoming: list[tuple[float, int, tuple[range, ...]]] = []  # turn's time, tie-break, runs
    ids, numbers = _BEGINNING[-1].stop, itertools.count()
    start_s = 0.0
    while True:
        if not upcoming or start_s < upcoming[0][0]:
            time_s, history = start_s, _BEGINNING
            new = _draw(dice, _FIRST_TURN_CHUNKS)
            start_s += dice.expovariate(_REQUESTS_PER_S * (1 - _NEXT_TURN))
        else:
            time_s, _, history = heapq.heappop(upcoming)
            new = _draw(dice, _LATER_TURN_CHUNKS)
        runs = (*history, range(ids, ids + math.ceil(new)))
        ids = runs[-1].stop
        yield Request(time_s, runs)
        if dice.random() < _NEXT_TURN:
            heapq.heappush(upcoming, (time_s + _draw(dice, _GAP_S), next(numbers), runs))


def distinct_chunks(requests: Iterable[Request]) -> int:
    """Return how many chunks there are, each counted once."""
    count = end = 0
    for run in sorted((run for request in requests for run in request.runs), key=_first):
        count += max(run.stop - max(run.start, end), 0)
        end = max(end, run.stop)
    return count


def _draw(dice: random.Random, median_and_sigma: tuple[float, float]) -> float:
    median, sigma = median_and_sigma
    return dice.lognormvariate(math.log(median), sigma)


def _first(run: range) -> int:
    return run.start
