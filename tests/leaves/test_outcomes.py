"""Outcomes: what several tiers say together, and results as values."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.errors import PutFailedError, SizeMismatchError, TierError
from tieredkv.keys import ObjectKey
from tieredkv.results import (
    DeleteStatus,
    FlushReport,
    GetStatus,
    PutResult,
    PutStatus,
    WriteOutcome,
    merge_deletes,
    merge_reads,
    size_mismatch,
)

READS_BY_WEIGHT = ["hit", "unknown", "corrupt", "rejected", "miss"]
DELETES_BY_WEIGHT = ["pinned", "unknown", "failed", "deleted", "absent"]


class TestMerging:
    @given(st.lists(st.sampled_from(GetStatus)))
    def test_reads(self, statuses: list[GetStatus]) -> None:
        heaviest = [weight for weight in READS_BY_WEIGHT if weight in statuses]
        assert merge_reads(statuses) == (heaviest[0] if heaviest else "miss")

    @given(st.lists(st.sampled_from(DeleteStatus)))
    def test_deletes(self, statuses: list[DeleteStatus]) -> None:
        heaviest = [weight for weight in DELETES_BY_WEIGHT if weight in statuses]
        assert merge_deletes(statuses) == (heaviest[0] if heaviest else "absent")

    @given(st.lists(st.sampled_from(GetStatus)), st.lists(st.sampled_from(GetStatus)))
    def test_in_any_order_and_grouping(
        self, some: list[GetStatus], others: list[GetStatus]
    ) -> None:
        together = merge_reads(some + others)
        assert together is merge_reads(others + some)
        assert together is merge_reads([merge_reads(some), merge_reads(others)])

    def test_an_outage_never_looks_like_an_empty_cache(self) -> None:
        assert merge_reads([GetStatus.MISS, GetStatus.UNKNOWN, GetStatus.MISS]) == "unknown"

    def test_every_status_has_its_weight(self) -> None:
        assert sorted(READS_BY_WEIGHT) == sorted(GetStatus)
        assert sorted(DELETES_BY_WEIGHT) == sorted(DeleteStatus)


class TestPutResult:
    KEY = ObjectKey("m", 0, b"\x01")

    def test_ok_does_not_raise(self) -> None:
        PutResult(self.KEY, ok=True, tiers={}).raise_for_status()

    def test_not_ok_raises_with_every_tier(self) -> None:
        error = TierError("valkey", "write", "connection refused")
        tiers = {
            "l1": WriteOutcome(PutStatus.SKIPPED, "no_memory"),
            "valkey": WriteOutcome(PutStatus.FAILED, None, error),
            "disk": WriteOutcome(PutStatus.STORED),
        }
        result = PutResult(self.KEY, ok=False, tiers=tiers)
        with pytest.raises(PutFailedError) as caught:
            result.raise_for_status()
        assert caught.value.result is result
        message = str(caught.value)
        assert "l1: skipped (no_memory)" in message
        assert "valkey: failed (valkey: write: connection refused)" in message
        assert "disk: stored" in message
        assert repr(self.KEY) in message

    def test_pickles_and_copies(self) -> None:
        result = PutResult(self.KEY, ok=False, tiers={"l1": WriteOutcome(PutStatus.STORED)})
        assert pickle.loads(pickle.dumps(result)) == result
        assert copy.deepcopy(result) == result


def test_a_size_mismatch_says_both_sizes() -> None:
    outcome = size_mismatch(100, 64)
    assert outcome.status is GetStatus.REJECTED
    assert isinstance(outcome.error, SizeMismatchError)
    assert (outcome.error.stored, outcome.error.wanted) == (100, 64)
    assert "100" in str(outcome.error)
    assert "64" in str(outcome.error)


def test_a_flush_report_is_ok_when_nothing_is_pending() -> None:
    assert FlushReport({}).ok
    assert not FlushReport({"disk": ("a",)}).ok


@pytest.mark.parametrize("status", [*GetStatus, *PutStatus, *DeleteStatus])
def test_statuses_are_their_words(status: str) -> None:
    assert status == str(status) == f"{status}"
    assert status.islower()
