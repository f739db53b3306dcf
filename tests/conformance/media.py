"""The media that are tested, each with the hooks of kit and state machine."""

from __future__ import annotations

from functools import cached_property

from tests.disk.layout import path_in
from tieredkv.backends.base import Backend
from tieredkv.backends.disk import DiskBackend
from tieredkv.testing.backends import BackendHooks
from tieredkv.testing.faults import FaultyBackend
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


class Memory(BackendHooks):
    @cached_property
    def medium(self) -> MemoryMedium:
        return MemoryMedium()

    def make_backend(self) -> Backend:
        return MemoryBackend(self.medium)

    def raw_put(self, name: str, value: bytes) -> None:
        self.medium.put(name, value)

    def raw_get(self, name: str) -> bytes | None:
        return self.medium.get(name)

    def raw_delete(self, name: str) -> None:
        self.medium.delete(name)

    def client_counts(self, backend: Backend) -> tuple[int, int] | None:
        inner = backend.inner if isinstance(backend, FaultyBackend) else backend
        assert isinstance(inner, MemoryBackend)
        return self.medium.num_clients, inner._workers.num_workers


class Disk(BackendHooks):
    def make_backend(self) -> Backend:
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
