"""The bucket backend is a backend, through the vendors' clients against a local Hub."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.hfbucket.media import Buckets
from tieredkv.backends.base import Backend
from tieredkv.backends.hfbucket import HFBucketBackend
from tieredkv.testing.backends import BackendConformance

pytestmark = pytest.mark.network


class TestHFBucket(BackendConformance):
    sizes = (0, 1, 64, 65, 100_000, (1 << 20) + 1)
    many = 1100

    @pytest.fixture(autouse=True)
    def bucket(self, buckets: Buckets) -> None:
        self.buckets = buckets

    def make_backend(self) -> Backend:
        # The kit changes values behind the backend's back: it may not remember any.
        return self.buckets.backend(metadata_ttl_s=0, transfer_workers=4)

    def raw_put(self, name: str, value: bytes) -> None:
        self.buckets.put(name, value)

    def raw_get(self, name: str) -> bytes | None:
        return self.buckets.get(name)

    def raw_delete(self, name: str) -> None:
        self.buckets.delete(name)

    def client_counts(self, backend: Backend) -> tuple[int, int] | None:
        assert isinstance(backend, HFBucketBackend)
        return backend._uploads.num_clients, backend._uploads.num_workers

    async def test_bursts_leave_no_more_clients_threads_and_descriptors(
        self, backend: Backend
    ) -> None:
        """Connections come when they are first needed: what is bounded is their number."""
        connections = 4 + 2 * 4  # to the Hub; to the CAS, for four readers and four writers
        before = _num_descriptors()
        threads: list[int] = []
        for _ in range(3):
            await self._burst(backend)
            existing, allowed = self.client_counts(backend) or (0, 0)
            assert 0 < existing <= allowed
            # A new event loop's selector and self-pipes come with the first threads.
            assert _num_descriptors() <= before + connections + 4
            threads.append(threading.active_count())
        assert max(threads[1:]) <= threads[0] + 16


def _num_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
