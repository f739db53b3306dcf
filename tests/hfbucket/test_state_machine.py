"""The bucket backend lives through any sequence of operations, faults included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.extent import extent
from tests.hfbucket.media import Buckets, RawClient
from tieredkv.backends.base import Backend
from tieredkv.testing import hub
from tieredkv.testing.machines import BackendMachine

pytestmark = [pytest.mark.stateful, pytest.mark.network]


def test_any_sequence_of_operations(
    server: hub.LocalHub, raw_client: RawClient, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    class Machine(BackendMachine):
        loop = anyio_backend

        def __init__(self) -> None:
            super().__init__()
            self.buckets = Buckets(server, raw_client)

        def make_backend(self) -> Backend:
            return self.buckets.backend()

        def raw_put(self, name: str, value: bytes) -> None:
            self.buckets.put(name, value)

        def raw_get(self, name: str) -> bytes | None:
            return self.buckets.get(name)

        def raw_delete(self, name: str) -> None:
            self.buckets.delete(name)

    run_state_machine_as_test(Machine, settings=extent(anyio_backend, network=True))
