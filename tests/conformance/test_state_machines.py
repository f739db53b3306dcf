"""The backends that need no server live through any sequence of operations, faults included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.media import Disk, Memory
from tests.extent import extent
from tieredkv.testing.machines import BackendMachine

pytestmark = pytest.mark.stateful


class MemoryMachine(Memory, BackendMachine):
    pass


class DiskMachine(Disk, BackendMachine):
    pass


@pytest.mark.parametrize("machine", [MemoryMachine, DiskMachine])
def test_any_sequence_of_operations(
    machine: type[BackendMachine], anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    class Machine(machine):  # type: ignore[misc,valid-type]
        loop = anyio_backend

    run_state_machine_as_test(Machine, settings=extent(anyio_backend))
