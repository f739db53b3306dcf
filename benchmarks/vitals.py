"""What a process takes while it works: memory, descriptors and threads must not go on growing."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Final

import anyio
import attrs

from benchmarks.runner import rss_bytes
from tieredkv.config import KiB, MiB

__all__ = ["Vitals", "give_back"]

_FEWEST: Final = 40  # before, growth says nothing
_GROWTH: Final = {"MiB of memory": 16, "descriptors": 32, "threads": 8}
_MALLOPT: Final = {-8: 2, -3: 128 * KiB}  # M_ARENA_MAX, M_MMAP_THRESHOLD


@attrs.frozen
class _Sample:
    after_s: float
    taken: dict[str, float]


def give_back() -> None:
    """Let malloc keep little of what is freed (mallopt(3)); call it before there are threads.

    By default there are up to eight heaps for each processor, and what these keep grows for long,
    as a leak would. Without them less growth is enough to tell one.
    """
    libc = ctypes.CDLL(None)
    for option, value in _MALLOPT.items():
        libc.mallopt(option, value)


class Vitals:
    """Samples of one process, evenly over its time."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    @asynccontextmanager
    async def watched(self, interval_s: float) -> AsyncIterator[None]:
        """Sample while the block runs."""
        began = time.monotonic()

        async def sample() -> None:
            while True:
                await anyio.sleep(interval_s)
                taken = {
                    "MiB of memory": rss_bytes() / MiB,
                    "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - not a Path
                    "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - vendors' too
                }
                self._samples.append(_Sample(time.monotonic() - began, taken))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sample)
            yield
            tasks.cancel_scope.cancel()

    def growth(self) -> list[str]:
        """Return, in words, what has grown from the second quarter of the time to the last."""
        quarter = len(self._samples) // 4
        if len(self._samples) < _FEWEST:
            return []
        grown = []
        for what, tolerance in _GROWTH.items():
            series = [sample.taken[what] for sample in self._samples]
            early, late = median(series[quarter : 2 * quarter]), median(series[-quarter:])
            if late - early > tolerance:
                grown.append(f"{late:.0f} {what} in the last quarter, {early:.0f} in the second")
        return grown

    def table(self) -> str:
        """Return a line for every tenth of the time."""
        step = max(1, len(self._samples) // 10)
        return "\n".join(
            f"  after {sample.after_s:.0f} s: "
            + ", ".join(f"{count:.0f} {what}" for what, count in sample.taken.items())
            for sample in self._samples[step - 1 :: step]
        )
