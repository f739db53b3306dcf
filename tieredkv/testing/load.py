"""Load on a backend while its medium fails: every byte read is checked, every failure has a name.

A value says of which name and version it is, and all its other bytes follow from that; so what
belongs to another name, or is put together from two values, is found out. In an outage answers may
be missing and acknowledged versions may be lost, but bytes are never wrong::

    async with under_load(backend) as load:
        server.kill()
        await load.failing()
        server.restart()
        await load.recovered()  # by itself
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from tieredkv.backends.base import Backend
from tieredkv.config import KiB
from tieredkv.errors import TieredKVError, TierError
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.backends.requests import PATIENCE_S, Landing, Source
from tieredkv.testing.content import content

__all__ = ["Load", "under_load"]

# Backends send small values in groups and large ones alone.
_SIZES: Final = (1 * KiB, 40 * KiB, 300 * KiB)
_NAMES: Final = tuple(f"chunk-{number}" for number in range(12))
_HEADER_BYTES: Final = 32
_WRITE_FAILURES: Final = (PutStatus.UNKNOWN, PutStatus.FAILED)


class Load:
    """Writes and reads of the same names over one backend, whose answers are all checked.

    Made and used on the event loop that has opened the backend.

    Args:
        backend: An open backend; its `Backend.deadline_s` is not applied.
        names: What to write and read, each ending in ``-`` and a number; the number decides about
            the size, from 1 to 300 KiB.

    Attributes:
        backend: The backend.
        names: What is written and read.
        num_answers: How many answers there were.
        failures: How many of them were which error, by operation and text.
        error_types: The types of these errors.
        failed_at_s: When each of them came, as `time.monotonic` has it.
        wrong: In words, what must not be: wrong bytes, and failures without a name.
    """

    def __init__(self, backend: Backend, *, names: Sequence[str] = _NAMES) -> None:
        self.backend: Backend = backend
        self.names: list[str] = list(names)
        self.num_answers: int = 0
        self.failures: Counter[tuple[str, str]] = Counter()
        self.error_types: set[type[TierError]] = set()
        self.failed_at_s: list[float] = []
        self.wrong: list[str] = []
        self._versions = itertools.count(1)
        self._stopping = False
        self._failure = anyio.Event()

    async def keep_writing(self) -> None:
        """Write all names again and again, until `stop`."""
        while not self._stopping:
            await self.write(self.names)

    async def keep_reading(self) -> None:
        """Read all names again and again, until `stop`."""
        while not self._stopping:
            await self.read(self.names)

    def stop(self) -> None:
        """Let the running calls of `keep_writing` and `keep_reading` be their last."""
        self._stopping = True

    async def write(self, names: Sequence[str]) -> list[str]:
        """Write a new version of each name in one batch; return the names that are stored."""
        sources = [Source(name, _value(name, next(self._versions))) for name in names]
        outcomes = await self.backend.write_many([source.request() for source in sources])
        stored: list[str] = []
        for name, outcome in zip(names, outcomes, strict=True):
            self.num_answers += 1
            if outcome.status is PutStatus.STORED:
                stored.append(name)
            elif outcome.status in _WRITE_FAILURES:
                self._note("write", name, outcome.error)
            else:
                self.wrong.append(f"write of {name}: {outcome}")
        return stored

    async def read(self, names: Sequence[str]) -> list[str]:
        """Read each name in one batch; return the names that were hits, with right bytes."""
        landings = [Landing(name, _size_of(name), answer=_judge_of(name)) for name in names]
        outcomes = await self.backend.read_many([landing.request() for landing in landings])
        hits: list[str] = []
        for name, landing, outcome in zip(names, landings, outcomes, strict=True):
            self.num_answers += 1
            if outcome.status is GetStatus.HIT:
                hits.append(name)
            elif outcome.status is GetStatus.UNKNOWN:
                self._note("read", name, outcome.error)
            elif outcome.status is not GetStatus.MISS:
                self.wrong.append(f"read of {name}: {outcome}")
            if not landing.guards_hold:
                self.wrong.append(f"read of {name}: bytes outside of its buffer")
        return hits

    async def failing(self, *, patience_s: float = PATIENCE_S) -> None:
        """Wait for a failure that comes after this call.

        Raises:
            TimeoutError: There is none within `patience_s`.
        """
        self._failure = anyio.Event()
        with anyio.fail_after(patience_s):
            await self._failure.wait()

    async def recovered(self, *, patience_s: float = PATIENCE_S) -> None:
        """Write and read all names until both succeed for all of them, one right after the other.

        Raises:
            TimeoutError: They do not within `patience_s`.
        """
        with anyio.fail_after(patience_s):
            while not (
                await self.write(self.names) == self.names
                and await self.read(self.names) == self.names
            ):
                pass

    def _note(self, operation: str, name: str, error: TieredKVError | None) -> None:
        if not isinstance(error, TierError) or error.tier != self.backend.name or not error.reason:
            self.wrong.append(f"{operation} of {name}: a failure without a name: {error!r}")
            return
        self.failures[operation, f"{type(error).__name__}: {error}"] += 1
        self.error_types.add(type(error))
        self.failed_at_s.append(time.monotonic())
        self._failure.set()


@asynccontextmanager
async def under_load(backend: Backend) -> AsyncIterator[Load]:
    """Write and read in three tasks while the block runs; nothing may have gone wrong at its end.

    Raises:
        AssertionError: Bytes were wrong, or a failure had no name.
    """
    load = Load(backend)
    await load.recovered()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load.keep_writing)
        for _ in range(2):
            tasks.start_soon(load.keep_reading)
        yield load
        load.stop()
    assert load.wrong == []


def _size_of(name: str) -> int:
    return _SIZES[int(name.rpartition("-")[2]) % len(_SIZES)]


def _value(name: str, version: int) -> bytes:
    header = f"{name}/{version}".encode().ljust(_HEADER_BYTES)
    return header + content((name, version), _size_of(name) - len(header))


def _judge_of(name: str) -> Callable[[bytes], GetStatus]:
    """Return a check that tells whether what has landed is a version of a name."""

    def judge(landed: bytes) -> GetStatus:
        said, _, version = landed[:_HEADER_BYTES].decode(errors="replace").rstrip().partition("/")
        right = said == name and version.isdecimal() and landed == _value(name, int(version))
        return GetStatus.HIT if right else GetStatus.CORRUPT

    return judge
