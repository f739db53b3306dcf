"""A store over two tiers lives through any sequence of operations, faults included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.extent import extent
from tests.store.machine import StoreMachine

pytestmark = pytest.mark.stateful


def test_any_sequence_of_operations(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    class Machine(StoreMachine):
        loop = anyio_backend

    run_state_machine_as_test(Machine, settings=extent(anyio_backend))
