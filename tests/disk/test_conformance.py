"""The disk backend is a backend in its less usual shapes, too.

The hooks know the layout by themselves, so that this holds for directories of earlier versions."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest

from tests.disk.layout import path_in
from tieredkv.backends import DiskBackend
from tieredkv.testing.backends import BackendConformance, BackendHooks


class Disk(BackendHooks):
    def raw_put(self, name: str, value: bytes) -> None:
        path = path_in(self.tmp_path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def raw_get(self, name: str) -> bytes | None:
        try:
            return path_in(self.tmp_path, name).read_bytes()
        except FileNotFoundError:
            return None

    def raw_delete(self, name: str) -> None:
        path_in(self.tmp_path, name).unlink()


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
