"""The store's state machine can fail: it finds defects by itself."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from tests.store.machine import StoreMachine
from tieredkv.frames import FrameCheck
from tieredkv.results import DeleteOutcome, DeleteStatus, GetStatus
from tieredkv.tiers.chain import Chain
from tieredkv.tiers.fences import Fences
from tieredkv.tiers.inflight import InFlight
from tieredkv.tiers.memory import MemoryTier
from tieredkv.tiers.pins import Pins
from tieredkv.tiers.writer import TierWriter
from tieredkv.tiers.writes import Writes

pytestmark = pytest.mark.stateful

Patch = Callable[[pytest.MonkeyPatch], None]


def reads_older_values_while_writes_are_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writes, "latest", lambda self, name: None)


def takes_any_bytes_for_the_value(patch: pytest.MonkeyPatch) -> None:
    def result(self: FrameCheck) -> GetStatus:
        self.payload_bytes = self._payload.nbytes
        return GetStatus.HIT

    patch.setattr(FrameCheck, "result", result)


def leaves_deleted_values_in_l1(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryTier, "discard", lambda self, name, cause="deleted": False)


def deletes_in_l1_alone(patch: pytest.MonkeyPatch) -> None:
    def deleting(
        self: TierWriter, names: Sequence[str], generation: int
    ) -> Callable[[], Awaitable[list[DeleteOutcome]]]:
        async def delete() -> list[DeleteOutcome]:
            return [DeleteOutcome(DeleteStatus.DELETED)] * len(names)

        return delete

    patch.setattr(TierWriter, "deleting", deleting)


def lets_late_writes_win(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fences, "floor", lambda self, name: 0)


def deletes_what_is_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pins, "__contains__", lambda self, name: False)


def never_gives_pins_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pins, "release", lambda self, pin, names=None: None)


def loses_the_memory_of_failed_reads(patch: pytest.MonkeyPatch) -> None:
    note = Chain._note

    def leak(self: Chain, tier: Any, wanted: Any, check: Any, outcome: Any) -> None:
        self._l1.reserve(wanted.load.name, wanted.nbytes)
        note(self, tier, wanted, check, outcome)

    patch.setattr(Chain, "_note", leak)


def lets_reuse_memory_that_is_leased(patch: pytest.MonkeyPatch) -> None:
    reserve = MemoryTier.reserve

    def reserve_anywhere(self: MemoryTier, name: str, nbytes: int, *, waits: bool = False) -> Any:
        for entry in self.leases.page.values():
            if entry.nbytes == nbytes:
                entry.users += 1
                return entry
        return reserve(self, name, nbytes, waits=waits)

    patch.setattr(MemoryTier, "reserve", reserve_anywhere)


def forgets_loads_that_were_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InFlight, "end", lambda self, load: None)


# What is broken on purpose may well lose leases.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "plant",
    [
        reads_older_values_while_writes_are_pending,
        takes_any_bytes_for_the_value,
        leaves_deleted_values_in_l1,
        deletes_in_l1_alone,
        lets_late_writes_win,
        deletes_what_is_pinned,
        never_gives_pins_back,
        loses_the_memory_of_failed_reads,
        lets_reuse_memory_that_is_leased,
        forgets_loads_that_were_overtaken,
    ],
)
def test_the_machine_finds_a_store_that(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr("tests.store.machine.PATIENCE_S", 1.0)
    with pytest.raises((AssertionError, TimeoutError, Flaky)):
        run_state_machine_as_test(StoreMachine, settings=_one_run())
    gc.collect()  # here, not in another test


def _one_run() -> settings:
    return settings(
        max_examples=500,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        print_blob=False,
        report_multiple_bugs=False,
    )
