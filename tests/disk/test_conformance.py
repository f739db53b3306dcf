"""The disk backend is a backend in its less usual shapes, too.

The hooks know the layout by themselves, so that this holds for directories of earlier versions."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from tests.conformance.media import Disk
from tieredkv.backends import DiskBackend
from tieredkv.testing.backends import BackendConformance


class TestWithinACapacity(Disk, BackendConformance):
    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, capacity="64MiB")


class TestWithOneWorker(Disk, BackendConformance):
    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, capacity="64MiB", num_workers=1)


class TestWithFsync(Disk, BackendConformance):
    many = 250

    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, durability="fsync")


class TestBesideAnOwner(Disk, BackendConformance):
    """Another process has the lock on the directory."""

    @pytest.fixture(autouse=True)
    def owner(self, surroundings: None) -> Iterator[None]:
        with (self.tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, capacity="64MiB")
