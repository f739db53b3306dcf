"""Backends with one defect each, and the tests of the kit that must catch it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeVar

from tieredkv.results import (
    GetStatus,
    PutStatus,
    ReadOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend

DefectT = TypeVar("DefectT", bound=type[MemoryBackend])

DEFECTS: dict[type[MemoryBackend], tuple[str, ...]] = {}
"""Each defect with the tests that catch it."""

HIT = ReadOutcome(GetStatus.HIT)
MISS = ReadOutcome(GetStatus.MISS)
STORED = WriteOutcome(PutStatus.STORED)


def caught_by(*tests: str) -> Callable[[DefectT], DefectT]:
    def register(defect: DefectT) -> DefectT:
        DEFECTS[defect] = tests
        return defect

    return register


def fill(buffers: Sequence[memoryview], value: bytes) -> None:
    at = 0
    for buffer in buffers:
        buffer[:] = value[at : at + buffer.nbytes]
        at += buffer.nbytes


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
