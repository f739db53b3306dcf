"""What operations answer: one outcome a key and tier, never a bare exception, never a guess."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from tieredkv.deferred import imported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tieredkv.outcomes import (
        DeleteOutcome,
        DeleteResult,
        FlushReport,
        PrefetchResult,
        PutResult,
        ReadOutcome,
        StatOutcome,
        StatResult,
        ValueInfo,
        WriteOutcome,
        size_mismatch,
    )

__all__ = [
    "DeleteOutcome",
    "DeleteResult",
    "DeleteStatus",
    "FlushReport",
    "GetStatus",
    "PrefetchResult",
    "PutResult",
    "PutStatus",
    "ReadOutcome",
    "StatOutcome",
    "StatResult",
    "ValueInfo",
    "WriteOutcome",
    "size_mismatch",
]


class GetStatus(enum.StrEnum):
    """How a read of one key ended."""

    HIT = "hit"
    MISS = "miss"
    """The value is not there, or what is there is not a value of ours for this key."""
    UNKNOWN = "unknown"
    """The tier did not answer in time or cannot be reached: it may well hold the value."""
    CORRUPT = "corrupt"
    """The tier's copy failed its checksum."""
    REJECTED = "rejected"
    """There is no memory for the value, it was refused, or it has another size than asked for."""


class PutStatus(enum.StrEnum):
    """How a write of one key to one tier ended."""

    STORED = "stored"
    PENDING = "pending"
    """Still on its way; the value stays in L1 until it has ended."""
    SKIPPED = "skipped"
    """Not tried; the outcome's `reason` says why."""
    REJECTED = "rejected"
    """The tier cannot take a value like this; the outcome's `reason` says why."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """No answer in time: the write may still land."""


class DeleteStatus(enum.StrEnum):
    """How a delete of one key ended."""

    DELETED = "deleted"
    ABSENT = "absent"
    PINNED = "pinned"
    """A look-up holds it; nothing was deleted, in no tier."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """No answer in time: the value may be gone or not."""


_READ_ORDER: Final = (
    GetStatus.HIT,
    GetStatus.UNKNOWN,
    GetStatus.CORRUPT,
    GetStatus.REJECTED,
    GetStatus.MISS,
)
_DELETE_ORDER: Final = (
    DeleteStatus.PINNED,
    DeleteStatus.UNKNOWN,
    DeleteStatus.FAILED,
    DeleteStatus.DELETED,
    DeleteStatus.ABSENT,
)


def merge_reads(statuses: Iterable[GetStatus]) -> GetStatus:
    """Return what a key's reads in several tiers say together: the most telling one; none: MISS."""
    return min(statuses, key=_READ_ORDER.index, default=GetStatus.MISS)


def merge_deletes(statuses: Iterable[DeleteStatus]) -> DeleteStatus:
    """Return what a key's deletes in several tiers say together; none: ABSENT."""
    return min(statuses, key=_DELETE_ORDER.index, default=DeleteStatus.ABSENT)


def prefix_length(results: Sequence[StatResult]) -> int:
    """Return how many of the leading results are hits."""
    hits = [result.status is GetStatus.HIT for result in results]
    return hits.index(False) if False in hits else len(hits)


def __getattr__(name: str) -> Any:
    return imported(globals(), name, {}, "outcomes")
