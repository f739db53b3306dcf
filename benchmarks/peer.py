"""What the benchmarks of peers move, in what pieces, and what a peer has to do for it."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Final

import attrs

from tieredkv import L1Config, ObjectKey
from tieredkv.cli.contents import Contents
from tieredkv.config import KiB, MiB

__all__ = ["AsyncClient", "BlockingClient", "Client", "Load", "Plan", "lacking"]

_GROUP_BYTES: Final = 1 * MiB
_READ_SHARE_OF_L1: Final = 8  # so much of L1 may be in flight
_BLOCK_BYTES: Final = 4 * KiB


class Load:
    """Values of one size, their keys, and memory that they may land in.

    Attributes:
        nbytes: Size of a value.
        object_keys: For the store …
        keys: … and for the others.
        values: The values.
        buffers: For each value.
    """

    def __init__(self, nbytes: int, count: int, prefix: str = "") -> None:
        contents = Contents(0, nbytes)
        self.nbytes = nbytes
        self.object_keys: list[ObjectKey] = [contents.key(at) for at in range(count)]
        self.keys = [prefix + key.wire_name for key in self.object_keys]
        self.values = [contents.value(at) for at in range(count)]
        memory = memoryview(mmap.mmap(-1, nbytes * count))
        self.buffers = [memory[at : at + nbytes] for at in range(0, memory.nbytes, nbytes)]

    def __str__(self) -> str:
        mib, kib = self.nbytes // MiB, self.nbytes // KiB
        return f"{len(self.keys)} x {mib} MiB" if mib else f"{len(self.keys)} x {kib} KiB"

    def l1(self) -> L1Config:
        """Return settings of an L1 that may have all of it in flight."""
        capacity = (_READ_SHARE_OF_L1 + 1) * len(self.keys) * (self.nbytes + _BLOCK_BYTES)
        return L1Config(capacity=max(capacity, 64 * MiB))


def lacking(*packages: str) -> str | None:
    """Say which distribution is not installed, or return None."""
    for package in packages:
        try:
            version(package)
        except PackageNotFoundError:
            return f"{package} is not installed"
    return None


@attrs.frozen
class Plan:
    """In what pieces values are moved.

    Attributes:
        groups: What a thread or task takes at a time.
        workers: Threads or tasks at a time.
        connections: Of them, threads at most.
        whole: Whether the store gets all of it in one call; else its tasks get value by value.
    """

    groups: Sequence[slice]
    workers: int
    connections: int
    whole: bool

    @classmethod
    def batch(cls, load: Load, connections: int) -> Plan:
        """Return the plan of one call: groups of 1 MiB, taken by as many as have connections."""
        step, count = max(1, _GROUP_BYTES // load.nbytes), len(load.keys)
        groups = [slice(at, at + step) for at in range(0, count, step)]
        return cls(groups, connections, connections, whole=True)

    @classmethod
    def one_by_one(cls, load: Load, tasks: int, connections: int) -> Plan:
        """Return the plan of tasks that each take one value after the other."""
        groups = [slice(at, at + 1) for at in range(len(load.keys))]
        return cls(groups, tasks, connections, whole=False)


class Client:
    """Somebody's client with all its connections.

    Attributes:
        name: How the tables call it.
        packages: Distributions that it needs.
        load: What it moves.
        place: Port of its server, or its directory.
    """

    name: ClassVar[str]
    packages: ClassVar[Sequence[str]] = ()

    def __init__(self, load: Load, place: Any) -> None:
        self.load = load
        self.place = place

    @classmethod
    def missing(cls) -> str | None:
        """Say what hinders its use here, or return None."""
        return lacking(*cls.packages)


class BlockingClient(ABC, Client):
    """One for several threads at a time."""

    @abstractmethod
    def open(self) -> None:
        """Connect."""

    @abstractmethod
    def get(self, group: slice) -> Sequence[Any]:
        """Return the bytes of some values."""

    @abstractmethod
    def set(self, group: slice) -> None:
        """Store some values."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class AsyncClient(ABC, Client):
    """One for asyncio."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def get(self, group: slice) -> Sequence[Any]:
        """Return the bytes of some values."""

    @abstractmethod
    async def set(self, group: slice) -> None:
        """Store some values."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""
