"""Records of how operations ended: of each tier's part, and of a call as a whole.

`tieredkv.results` has their names; a record is imported with the first one that is named there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tieredkv.errors import PutFailedError, SizeMismatchError, TieredKVError
from tieredkv.results import GetStatus, prefix_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tieredkv.keys import Key
    from tieredkv.results import DeleteStatus, PutStatus

__all__ = [
    "DeleteOutcome",
    "DeleteResult",
    "FlushReport",
    "PrefetchResult",
    "PutResult",
    "ReadOutcome",
    "StatOutcome",
    "StatResult",
    "ValueInfo",
    "WriteOutcome",
    "size_mismatch",
]


@attrs.frozen
class ReadOutcome:
    """A backend's answer to one read.

    Attributes:
        status: HIT: the buffers hold the whole value and its check passed. Any other: their
            contents are undefined, but for MISS of an absent key, which leaves them alone.
        error: Why, where there is more to say than the status does.
    """

    status: GetStatus
    error: TieredKVError | None = None


@attrs.frozen
class StatOutcome:
    """A backend's answer to "what do you hold under this name?".

    Attributes:
        status: HIT, MISS or UNKNOWN.
        stored_bytes: With HIT, the size as stored: the payload with its frame, if it has one.
        error: Why, where there is more to say.
    """

    status: GetStatus
    stored_bytes: int = 0
    error: TieredKVError | None = None


@attrs.frozen
class WriteOutcome:
    """How the write of one value to one tier ended.

    Attributes:
        status: What happened.
        reason: With SKIPPED and REJECTED, one word for why: ``"no_memory"``, ``"too_large"``, …
        error: The cause of FAILED and UNKNOWN.
    """

    status: PutStatus
    reason: str | None = None
    error: TieredKVError | None = None

    def __str__(self) -> str:
        detail = self.reason or self.error
        return f"{self.status} ({detail})" if detail else str(self.status)


@attrs.frozen
class DeleteOutcome:
    """How the delete of one name in one tier ended."""

    status: DeleteStatus
    error: TieredKVError | None = None


@attrs.define  # frozen would take twice the time of making one
class PutResult:
    """How a put ended.

    Attributes:
        key: The key as it was given.
        ok: Whether the write policy's requirement was met.
        tiers: One outcome a tier, ``"l1"`` first, as of the moment the put returned. Complete:
            a tier that was not tried is SKIPPED with its reason.
    """

    key: Key
    ok: bool
    tiers: Mapping[str, WriteOutcome]

    def raise_for_status(self) -> None:
        """Do nothing if `ok`.

        Raises:
            PutFailedError: The requirement was not met.
        """
        if not self.ok:
            raise PutFailedError(self)


@attrs.frozen
class DeleteResult:
    """How a delete ended.

    Attributes:
        key: The key as it was given.
        status: All tiers together.
        tiers: One outcome a tier, ``"l1"`` first.
    """

    key: Key
    status: DeleteStatus
    tiers: Mapping[str, DeleteOutcome]


@attrs.frozen
class ValueInfo:
    """What is known of a stored value without reading it.

    Attributes:
        nbytes: Payload bytes.
        tier: The first tier that holds it.
    """

    nbytes: int
    tier: str


@attrs.frozen
class StatResult:
    """What is known of one key.

    Attributes:
        key: The key as it was given.
        status: HIT, MISS or UNKNOWN.
        info: With HIT, the value's size and tier.
        tier: With HIT, the tier that holds it; else the one that `error` is about, or None.
        error: Why it is UNKNOWN.
    """

    key: Key
    status: GetStatus
    info: ValueInfo | None = None
    tier: str | None = None
    error: TieredKVError | None = None


@attrs.frozen
class PrefetchResult:
    """What a prefetch brought into L1.

    Attributes:
        results: One a key, in the order asked. HIT: L1 holds it now; `tier` says where it came
            from. REJECTED: a tier holds it, but it was passed over: it lies behind the prefix, or
            there is no room for it. Else it was not found, and why.
        loaded_bytes: Payload bytes that L1 did not hold before.
    """

    results: tuple[StatResult, ...]
    loaded_bytes: int

    @property
    def prefix_length(self) -> int:
        """How many of the leading keys L1 holds."""
        return prefix_length(self.results)


@attrs.frozen
class FlushReport:
    """What is not in its tier.

    Attributes:
        pending: Tier → wire names whose writes have no outcome; tiers without any are left out.
        failed: Tier → wire name → how its last write ended, for those that were begun and not
            stored since the last report, the latest 10,000 of each tier. What was put or deleted
            again with success, or is pending, is not among them.
    """

    pending: Mapping[str, tuple[str, ...]]
    failed: Mapping[str, Mapping[str, WriteOutcome]] = attrs.field(factory=dict)

    @property
    def ok(self) -> bool:
        """Whether everything that was to be written is stored."""
        return not self.pending and not self.failed


def size_mismatch(stored: int, wanted: int) -> ReadOutcome:
    """Return the outcome of a read that asked for another size than the tier holds."""
    return ReadOutcome(GetStatus.REJECTED, SizeMismatchError(stored, wanted))
