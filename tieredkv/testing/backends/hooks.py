"""What the kit and the state machine must be told of a backend."""

from __future__ import annotations

from pathlib import Path

from tieredkv.backends.base import Backend
from tieredkv.backends.threaded import ThreadedBackend

__all__ = ["BackendHooks"]


class BackendHooks:
    """How to make a backend, and how to reach its medium without it.

    A subclass overrides `make_backend` and the three raw hooks. These must not go through the
    backend, nor through its code: a defect that cancels out between writing and reading would go
    unnoticed. They are called in the test's thread, on its event loop, and may block.

    Attributes:
        tmp_path: A directory, empty at the start of each test or example.
    """

    tmp_path: Path

    def make_backend(self) -> Backend:
        """Return a new backend, not open, over the medium of this test or example."""
        raise NotImplementedError

    def raw_put(self, name: str, value: bytes) -> None:
        """Store a value under a wire name."""
        raise NotImplementedError

    def raw_get(self, name: str) -> bytes | None:
        """Return what is stored under a wire name, None if nothing is."""
        raise NotImplementedError

    def raw_delete(self, name: str) -> None:
        """Drop what is stored under a wire name."""
        raise NotImplementedError

    def client_counts(self, backend: Backend) -> tuple[int, int] | None:
        """Return how many clients a backend has now, and how many it may have; None: it has none.

        Override it to count at the medium (connections to a server, for example).
        """
        if not isinstance(backend, ThreadedBackend):
            return None
        workers = backend._workers
        return workers.num_clients, workers.num_workers
