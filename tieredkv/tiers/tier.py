"""One L2 tier: a backend at its place in a store, with its deadline, counters and state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from tieredkv.errors import (
    StoreClosedError,
    TieredKVError,
    TierError,
    TierUnavailableError,
    WrongLoopError,
)
from tieredkv.observe import Counts
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
)

if TYPE_CHECKING:
    from tieredkv.backends.base import Backend, BackendStatus, ReadRequest, WriteRequest

__all__ = ["Tier"]

_log: Final = logging.getLogger(__name__)

_MOVES_BYTES: Final = {"read": GetStatus.HIT, "write": PutStatus.STORED}

OutcomeT = TypeVar("OutcomeT", ReadOutcome, WriteOutcome, StatOutcome, DeleteOutcome)


class Tier:
    """Calls a backend so that every name gets an outcome, in bounded time, whatever happens.

    Attributes:
        backend: The backend.
        name: Its name.
        counts: What it has answered.
        failure: Why the last call failed; None if it did not.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend: Backend = backend
        self.name: str = backend.name
        self.counts: Counts = Counts()
        self.failure: TieredKVError | None = None

    async def read_many(
        self, requests: Sequence[ReadRequest], *, shielded: bool = False
    ) -> list[ReadOutcome]:
        """See `Backend.read_many`.

        With `shielded` it returns only when no worker touches the buffers any more, without
        deadline: for memory that belongs to the caller of the store.
        """
        return await self._ask(
            "read",
            self.backend.read_many,
            requests,
            lambda error: ReadOutcome(GetStatus.UNKNOWN, error),
            shielded=shielded,
        )

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """See `Backend.write_many`."""
        return await self._ask(
            "write",
            self.backend.write_many,
            requests,
            lambda error: WriteOutcome(PutStatus.UNKNOWN, None, error),
        )

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`."""
        return await self._ask(
            "stat",
            self.backend.stat_many,
            names,
            lambda error: StatOutcome(GetStatus.UNKNOWN, 0, error),
        )

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        return await self._ask(
            "delete",
            self.backend.delete_many,
            names,
            lambda error: DeleteOutcome(DeleteStatus.UNKNOWN, error),
        )

    async def status(self) -> dict[str, Any]:
        """Return whether it works, by its last call and by its own word, and its own figures."""
        said: BackendStatus | None = None
        reason = ""
        with anyio.move_on_after(self.backend.deadline_s):
            try:
                said = await self.backend.status()
            except Exception as raised:  # noqa: BLE001 - a third party's backend
                reason = f"status: {type(raised).__name__}: {raised}"
        if said is None:
            reason = reason or f"status: no answer within {self.backend.deadline_s} s"
        elif not said.is_healthy:
            reason = said.reason
        reason = str(self.failure) if self.failure is not None else reason
        details = dict(said.details) if said is not None else {}
        return {"is_healthy": not reason, "reason": reason, "details": details}

    async def aclose(self) -> None:
        """Close the backend; what it raises is logged."""
        try:
            await self.backend.aclose()
        except Exception:  # noqa: BLE001 - a third party's backend
            _log.exception("%s: closing failed", self.name)

    async def _ask(
        self,
        operation: str,
        call: Callable[[Sequence[Any]], Coroutine[Any, Any, list[OutcomeT]]],
        requests: Sequence[Any],
        failed: Callable[[TieredKVError], OutcomeT],
        *,
        shielded: bool = False,
    ) -> list[OutcomeT]:
        if not requests:
            return []
        began = time.perf_counter()
        error: TieredKVError | None = None
        outcomes: list[OutcomeT] = []
        deadline_s = float("inf") if shielded else self.backend.deadline_s
        with anyio.move_on_after(deadline_s, shield=shielded) as scope:
            try:
                outcomes = await call(requests)
            except (StoreClosedError, WrongLoopError):
                raise
            except Exception as raised:  # noqa: BLE001 - a third party's backend
                _log.exception("%s: %s: the backend raised, a defect of it", self.name, operation)
                error = TierError(self.name, operation, f"{type(raised).__name__}: {raised}")
        if scope.cancelled_caught:
            error = TierUnavailableError(self.name, operation, f"no answer within {deadline_s} s")
        if len(outcomes) != len(requests):
            error = error or TierError(self.name, operation, "an outcome is missing")
            outcomes = [failed(error)] * len(requests)
        self.counts.time(operation, time.perf_counter() - began, len(requests))
        for request, outcome in zip(requests, outcomes, strict=True):
            moved = outcome.status is _MOVES_BYTES.get(operation)
            self.counts.count(operation, outcome.status, request.nbytes if moved else 0)
        self._watch(operation, outcomes)
        return outcomes

    def _watch(self, operation: str, outcomes: Sequence[OutcomeT]) -> None:
        """Log once when the tier begins to fail, and once when it answers again."""
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        failure = error if isinstance(error, TierError) else None
        if failure is not None and self.failure is None:
            _log.warning("tier %s is failing: %s", self.name, failure)
        elif self.failure is not None and failure is None:
            _log.info("tier %s answers again: %s", self.name, operation)
        self.failure = failure
