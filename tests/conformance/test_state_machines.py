"""The backends that need no server live through any sequence of operations, faults included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.media import Disk, Memory
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

    run_state_machine_as_test(Machine, settings=_extent(anyio_backend))


def _extent(loop: tuple[str, dict[str, Any]]) -> settings:
    """Return fewer and shorter examples for all loops but one, unless asked for all."""
    thorough = settings.get_current_profile_name() == "stateful"
    if thorough or loop == ("asyncio", {"use_uvloop": False}):
        return settings(max_examples=200, stateful_step_count=50)
    return settings(max_examples=20, stateful_step_count=20)
