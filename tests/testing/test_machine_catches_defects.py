"""The state machine can fail: it finds defects by itself."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.media import Memory
from tests.testing.defects import cancellation, lifecycle, names, reads, writes
from tieredkv.backends.base import Backend
from tieredkv.testing import machines
from tieredkv.testing.backends import requests
from tieredkv.testing.machines import BackendMachine
from tieredkv.testing.memory import MemoryBackend

pytestmark = pytest.mark.stateful


@pytest.mark.parametrize(
    "defect",
    [
        reads.WritesBeyondTheBuffer,
        reads.ReadsWhatFits,
        reads.ClearsTheBufferFirst,
        reads.FillsTheTrailerFirst,
        reads.ReadsEachNameOnce,
        reads.SortsTheBatch,
        reads.IgnoresTheCheck,
        reads.KeepsItsLastRequest,
        writes.KeepsTheFirstSize,
        writes.WritesEveryDuplicate,
        writes.LetsTheFirstWin,
        writes.WritesInTwoParts,
        names.TakesEmptyForAbsent,
        names.DeletesWhatIsNotThere,
        names.FailsToDeleteWhatIsNotThere,
        names.BuriesNamesForGood,
        lifecycle.ForgetsWhenClosed,
        cancellation.StopsHalfWay,
    ],
)
def test_the_machine_finds(defect: type[MemoryBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "PATIENCE_S", 1.0)
    monkeypatch.setattr(requests, "PATIENCE_S", 0.3)

    class Machine(Memory, BackendMachine):
        def make_backend(self) -> Backend:
            return defect(self.medium)

    with pytest.raises((AssertionError, TimeoutError, Flaky)):
        run_state_machine_as_test(Machine, settings=_one_run())


def _one_run() -> settings:
    return settings(
        max_examples=1000,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        print_blob=False,
        report_multiple_bugs=False,
    )
