"""The backends that need no server are backends."""

from __future__ import annotations

from tests.conformance.media import Disk, Memory
from tieredkv.backends.base import Backend
from tieredkv.testing.backends import BackendConformance
from tieredkv.testing.faults import FaultyBackend
from tieredkv.testing.memory import MemoryBackend


class TestMemory(Memory, BackendConformance):
    pass


class TestMemoryThatCannotScatterAndForgets(Memory, BackendConformance):
    """Capabilities as those of a server with expiry and a limit."""

    def make_backend(self) -> Backend:
        return MemoryBackend(
            self.medium, scatter=False, native_ttl=True, max_value_bytes=max(self.sizes)
        )


class TestMemoryWithOneWorker(Memory, BackendConformance):
    def make_backend(self) -> Backend:
        return MemoryBackend(self.medium, num_workers=1)


class TestFaultyBackendWithoutFaults(Memory, BackendConformance):
    def make_backend(self) -> Backend:
        return FaultyBackend(super().make_backend())


class TestDisk(Disk, BackendConformance):
    pass
