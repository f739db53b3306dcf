"""The disk backend, in several shapes, is a backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.disk.layout import path_in
from tieredkv.backends import DiskBackend
from tieredkv.testing.backends import BackendConformance


class TestDiskBackend(BackendConformance):
    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path)

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


class TestWithinACapacity(TestDiskBackend):
    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, capacity="64MiB")


class TestWithFsync(TestDiskBackend):
    many = 250

    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, durability="fsync", num_workers=2)


class TestBesideAnOwner(TestDiskBackend):
    """Another process has the lock on the directory."""

    @pytest.fixture(autouse=True)
    def owner(self, surroundings: None) -> Iterator[None]:
        import fcntl

        with (self.tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def make_backend(self) -> DiskBackend:
        return DiskBackend(self.tmp_path, capacity="64MiB")
