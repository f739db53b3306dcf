"""The memory backend, in several shapes, is a backend."""

from __future__ import annotations

from functools import cached_property

from tieredkv.backends.base import Backend
from tieredkv.testing.backends import BackendConformance
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


class TestMemoryBackend(BackendConformance):
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

    def client_counts(self, backend: Backend) -> tuple[int, int]:
        return self.medium.num_clients, 4
