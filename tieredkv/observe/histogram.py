"""Durations in buckets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

__all__ = ["Histogram"]

_STEPS: Final = 16  # for each power of two
_LEAST_S: Final = 1e-9  # for nothing at all


class Histogram:
    """Counts of durations in buckets that are at most 1/16 wide.

    A duration's bucket is its binary exponent and the next four bits of its mantissa, as in the
    HDR histogram (Gil Tene, hdrhistogram.org), but sparse: a bucket exists once it is hit. So a
    quantile is off by 3.2 % at the most, whatever the range.

    Attributes:
        count: Durations recorded.
        total_s: Their sum, in seconds.
    """

    __slots__ = ("_buckets", "count", "total_s")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count: int = 0
        self.total_s: float = 0.0

    def record(self, duration_s: float, times: int = 1) -> None:
        """Count a duration, as that of `times` operations."""
        mantissa, exponent = math.frexp(duration_s or _LEAST_S)
        bucket = (exponent - 1) * _STEPS + int(mantissa * 2 * _STEPS)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + times
        self.count += times
        self.total_s += duration_s * times

    def quantile(self, fraction: float) -> float:
        """Return the duration in seconds below which this fraction of them lies; 0.0 if none."""
        rank = fraction * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                exponent, step = divmod(bucket, _STEPS)
                return math.ldexp(0.5 + (step + 0.5) / (2 * _STEPS), exponent)
        return 0.0

    def copy(self) -> Histogram:
        """Return a detached copy."""
        twin = Histogram()
        twin._buckets = dict(self._buckets)
        twin.count, twin.total_s = self.count, self.total_s
        return twin

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        """Return a histogram of all that was recorded in several."""
        merged = cls()
        for histogram in histograms:
            for bucket, times in histogram._buckets.items():  # noqa: SLF001 - its own kind
                merged._buckets[bucket] = merged._buckets.get(bucket, 0) + times
            merged.count += histogram.count
            merged.total_s += histogram.total_s
        return merged
