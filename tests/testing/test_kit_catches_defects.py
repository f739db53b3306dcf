"""The conformance kit can fail: each of its tests catches a backend with a defect."""

from __future__ import annotations

import inspect
from pathlib import Path

import anyio
import pytest

from tests.conformance.media import Memory
from tests.testing.defects import DEFECTS
from tieredkv.backends.base import Backend
from tieredkv.testing.backends import BackendConformance, lifecycle, requests, writes
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.anyio

WITHOUT_LOOP = "test_a_backend_is_made_without_an_event_loop"
CASES = [(defect, test) for defect, tests in DEFECTS.items() for test in tests]
BASICS = ("test_a_read_lands_exactly_the_stored_bytes", "test_stat_tells_what_is_stored")


class Kit(Memory, BackendConformance):
    __test__ = False

    defect: type[MemoryBackend]

    def make_backend(self) -> Backend:
        return self.defect(self.medium)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits in vain here does so for a short time."""
    monkeypatch.setattr(requests, "PATIENCE_S", 0.3)
    monkeypatch.setattr(lifecycle, "PATIENCE_S", 0.3)
    monkeypatch.setattr(writes, "PATIENCE_S", 2.0)  # longer than a value lives


@pytest.mark.parametrize(("defect", "test"), CASES)
async def test_a_defect_is_caught(
    defect: type[MemoryBackend], test: str, tmp_path: Path, anyio_backend: object
) -> None:
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        await _run(defect, test, tmp_path, anyio_backend)


@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_defect_is_otherwise_a_backend(
    defect: type[MemoryBackend], tmp_path: Path, anyio_backend: object
) -> None:
    for test in set(BASICS) - set(DEFECTS[defect]):
        await _run(defect, test, tmp_path, anyio_backend)


def test_a_backend_that_needs_an_event_loop_is_caught() -> None:
    class NeedsALoop(MemoryBackend):
        def __init__(self, *arguments: object) -> None:
            super().__init__()
            self.event_loop = anyio.lowlevel.current_token()

    kit = Kit()
    kit.defect = NeedsALoop
    with pytest.raises(anyio.NoEventLoopError):
        getattr(kit, WITHOUT_LOOP)()


def test_every_test_of_the_kit_catches_something() -> None:
    tests = {name for name in dir(BackendConformance) if name.startswith("test_")}
    assert tests == {test for _, test in CASES} | {WITHOUT_LOOP}


async def _run(
    defect: type[MemoryBackend], test: str, tmp_path: Path, anyio_backend: object
) -> None:
    """Run one test of the kit as pytest does; raise what it raises, out of any groups."""
    kit = Kit()
    kit.defect = defect
    kit.tmp_path = tmp_path
    function = getattr(kit, test)
    parameters = inspect.signature(function).parameters
    arguments = {"anyio_backend": anyio_backend} if "anyio_backend" in parameters else {}
    try:
        if "backend" in parameters:
            async with kit.opened() as backend:
                await function(backend, **arguments)
        else:
            await function(**arguments)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
