"""Real media for all backends, and what can happen to them: kills, stops, restarts, lost answers.

A thread for each medium strikes it again and again, and cures it, while a store is at work.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from tieredkv.backends import Backend, DiskBackend, HFBucketBackend, ValkeyBackend
from tieredkv.testing import hub
from tieredkv.testing.valkey import ValkeyServer

__all__ = ["Chaos", "Directory", "Fault", "Hub", "Medium", "Server", "prepare_environment"]

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2

_POLL_S: Final = 0.01
_STRUCK_S: Final = 0.3
_HEALTHY_S: Final = 1.5
_LONGEST_S: Final = 5.0


def prepare_environment(home: Path) -> None:
    """Keep the vendors' packages, which read this when they are imported, off the user's home."""
    os.environ.update(
        HF_HOME=str(home),
        HF_XET_CACHE=str(home / "xet"),
        HF_HUB_DISABLE_TELEMETRY="1",
        NO_PROXY="127.0.0.1",
        RUST_LOG="off",
    )
    os.environ.pop("HF_TOKEN", None)


@attrs.frozen
class Fault:
    """Something that happens to a medium, and its end."""

    name: str
    strike: Callable[[], object]
    cure: Callable[[], object]


class Medium(ABC):
    """Where one backend keeps its values.

    Attributes:
        faults: What can happen to it, one at a time.
    """

    faults: tuple[Fault, ...]

    @abstractmethod
    def backend(self) -> Backend:
        """Return a backend over it that gives up soon, not open."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""


class Directory(Medium):
    """A directory that can be removed, or be out of reach behind a file for a while.

    It does not come back as it was after others have been at work in its place: a medium that goes
    back in time is not among the faults that a store can tell.
    """

    def __init__(self, path: Path, *, capacity_bytes: int) -> None:
        self._path = path
        self._aside = path.with_suffix(".aside")
        self._capacity_bytes = capacity_bytes
        self.faults = (
            Fault("directory removed", self._remove, lambda: None),
            Fault("directory behind a file", self._hide, self._show),
        )

    def backend(self) -> Backend:
        return DiskBackend(self._path, capacity=self._capacity_bytes)

    def stop(self) -> None:
        shutil.rmtree(self._path)

    def _remove(self) -> None:
        self._path.rename(self._aside)
        shutil.rmtree(self._aside)

    def _hide(self) -> None:
        self._aside.touch()
        _exchange(self._path, self._aside)

    def _show(self) -> None:
        _exchange(self._path, self._aside)
        self._aside.unlink()


def _exchange(one: Path, other: Path) -> None:
    """Swap two paths at once, so that at no time nothing is there (Linux, renameat2(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


class Server(Medium):
    """A Valkey server that evicts; killed, it loses everything."""

    def __init__(self, *, maxmemory_bytes: int) -> None:
        self._server = ValkeyServer(maxmemory=maxmemory_bytes, policy="allkeys-lru")
        self._server.start()
        self.faults = (
            Fault("server killed", self._server.kill, self._server.restart),
            Fault("server stopped (SIGSTOP)", self._server.pause, self._server.resume),
            Fault("connections dropped", self._server.drop_clients, lambda: None),
        )

    def backend(self) -> Backend:
        backend = ValkeyBackend(self._server.url, request_timeout_s=0.3, connect_timeout_s=0.5)
        backend.deadline_s = 2.0
        return backend

    def stop(self) -> None:
        self._server.stop()


class Hub(Medium):
    """A local Hugging Face Hub, in a process of its own.

    Args:
        root: Where it keeps its files.
        corrupts: Whether one of its faults changes bytes, which bare values do not show.
    """

    def __init__(self, root: Path, *, corrupts: bool) -> None:
        self._root = root
        self._hub = hub.start(root, process=True)
        self._token = self._hub.token
        self._port = int(self._hub.endpoint.rpartition(":")[2])
        self.faults = (
            Fault("Hub restarted", self._end, self._begin),
            self._fault("Hub answers 503", hub.Fault(status=503)),
            self._fault("Hub drops half-done requests", hub.Fault(drop=True, carried_out=True)),
            self._fault("Hub is slow", hub.Fault(delay_s=0.5)),
        )
        if corrupts:
            other_bytes = hub.Fault(path="/cas/data/", corrupt_byte=500)
            self.faults += (self._fault("Hub sends other bytes", other_bytes),)

    def backend(self) -> Backend:
        backend = HFBucketBackend(
            "hf://buckets/local/soak/kv",
            endpoint=self._hub.endpoint,
            token=self._token,
            create_bucket=True,
            request_timeout_s=1.0,
            connect_timeout_s=0.5,
        )
        backend.deadline_s = 3.0
        return backend

    def stop(self) -> None:
        self._end()

    def _end(self) -> None:
        self._hub.stop()

    def _begin(self) -> None:
        self._hub = hub.start(self._root, process=True, port=self._port, token=self._token)

    def _fault(self, name: str, fault: hub.Fault) -> Fault:
        return Fault(name, lambda: self._hub.inject(fault), self._clear)

    def _clear(self) -> None:
        self._hub.clear_faults()


class Chaos:
    """Strikes media and cures them, each in a thread of its own.

    A fault lasts for a share of the work and for a while; then its medium is left alone, a little
    longer.

    Args:
        media: What to strike.
        seed: Of the order.
        span: How much of `progress` a fault lasts.
        progress: How much work is done.

    Attributes:
        struck: Fault → how often it has struck.
        errors: What went wrong with the media themselves.
    """

    def __init__(
        self, media: Sequence[Medium], *, seed: int, span: int, progress: Callable[[], int]
    ) -> None:
        self.struck: Counter[str] = Counter()
        self.errors: list[str] = []
        self._span = span
        self._progress = progress
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_striking, args=(medium, random.Random(seed + place)))
            for place, medium in enumerate(media)
        ]
        self._expected = {fault.name for medium in media for fault in medium.faults}

    @property
    def is_complete(self) -> bool:
        """Whether every fault has struck and was cured, or something went wrong."""
        return set(self.struck) == self._expected or bool(self.errors)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Strike while the block runs; every medium is well again when it is left."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join()

    def _keep_striking(self, medium: Medium, chance: random.Random) -> None:
        try:
            left: list[Fault] = []
            while True:
                left = left or chance.sample(medium.faults, len(medium.faults))
                fault = left.pop()
                self._wait(2 * self._span, _HEALTHY_S)
                if self._stopping.is_set():
                    return
                fault.strike()
                try:
                    self._wait(self._span, _STRUCK_S)
                finally:
                    fault.cure()
                self.struck[fault.name] += 1
        except Exception as error:  # noqa: BLE001 - told at the end
            self.errors.append(f"{type(medium).__name__}: {type(error).__name__}: {error}")

    def _wait(self, work: int, seconds: float) -> None:
        began, until = time.monotonic(), self._progress() + work
        while not self._stopping.is_set():
            waited = time.monotonic() - began
            if waited > _LONGEST_S or (waited > seconds and self._progress() >= until):
                return
            time.sleep(_POLL_S)
