"""What a process takes for longer and longer work is told from what it takes anyway."""

from __future__ import annotations

import os
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from benchmarks.vitals import Vitals
from tieredkv.config import MiB

pytestmark = pytest.mark.anyio

SAMPLES = 80


async def watched(step: Callable[[], object]) -> list[str]:
    """Take a step before each sample; return what has grown."""
    vitals = Vitals()
    with anyio.fail_after(60):
        async with vitals.watched(0.001):
            while len(vitals._samples) < SAMPLES:
                seen = len(vitals._samples)
                step()
                while len(vitals._samples) == seen:
                    await anyio.lowlevel.checkpoint()
    return vitals.growth()


async def test_what_is_taken_and_given_back_is_no_growth() -> None:
    assert not await watched(lambda: b"x" * MiB)


async def test_memory_that_is_kept_is_named() -> None:
    kept: list[bytes] = []
    (grown,) = await watched(lambda: kept.append(b"x" * MiB))
    assert "MiB of memory in the last quarter" in grown


async def test_descriptors_that_are_kept_are_named() -> None:
    kept: list[int] = []
    try:
        (grown,) = await watched(lambda: kept.append(os.dup(0)))
        assert "descriptors in the last quarter" in grown
    finally:
        for descriptor in kept:
            os.close(descriptor)
