"""One L2 tier: a backend at its place in a store, with deadline, health, fences and counters."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from tieredkv.errors import (
    StoreClosedError,
    TieredKVError,
    TierError,
    TierUnavailableError,
    WrongLoopError,
)
from tieredkv.observe import Counts, TierStats
from tieredkv.observe.logs import Rarely
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
)
from tieredkv.tiers.capacity import Account
from tieredkv.tiers.health import Health

if TYPE_CHECKING:
    from tieredkv.backends.base import (
        Backend,
        BackendStatus,
        ReadRequest,
        StoredName,
        WriteRequest,
    )
    from tieredkv.observe.telemetry import Telemetry
    from tieredkv.tasks import Detached
    from tieredkv.tiers.absences import Absences
    from tieredkv.tiers.fences import Fences

__all__ = ["Tier"]

_log: Final = logging.getLogger(__name__)

_MOVES_BYTES: Final = {"read": GetStatus.HIT, "write": PutStatus.STORED}

_ABSENT: Final = StatOutcome(GetStatus.MISS)

_NAMES_REMEMBERED: Final = 65_536

OutcomeT = TypeVar("OutcomeT", ReadOutcome, WriteOutcome, StatOutcome, DeleteOutcome)


class Tier:
    """Calls a backend so that every name gets an outcome, in bounded time, whatever happens.

    Attributes:
        backend: The backend.
        name: Its name.
        counts: What it has answered.
        health: Whether it is asked at all.
        fences: Which of its values are too old.
        absences: What it need not be asked for again at once.
        account: What it holds for each tenant, and may hold.
        risen: Names that it has answered with once; where a second hit decides.
        is_draining: Whether it is about to be removed: it is not read, and takes no new values.
    """

    def __init__(
        self,
        backend: Backend,
        detached: Detached,
        fences: Fences,
        absences: Absences,
        telemetry: Telemetry,
    ) -> None:
        self.backend: Backend = backend
        self.name: str = backend.name
        self.counts: Counts = Counts()
        self.health: Health = Health(backend.name, self._probe, detached)
        self.fences: Fences = fences
        self.absences: Absences = absences
        self._writes = 0  # that have ended
        self.account: Account = Account()
        self.risen: OrderedDict[str, None] = OrderedDict()
        self.is_draining: bool = False
        self._detached = detached
        self._is_open = False
        self._telemetry = telemetry
        self._raised = Rarely(_log)

    async def open(self) -> None:
        """Open the backend; one that cannot be reached now is asked again in the background.

        Raises:
            TierError: It refuses, and waiting will not help.
            MissingDependencyError: A package is missing or unfit.
        """
        try:
            await self.backend.open()
        except TierUnavailableError as error:
            self.health.open(error)
        else:
            self._is_open = True

    def promotes(self, name: str) -> bool:
        """Say whether a value that it has answered with shall enter the tiers above."""
        if self.backend.promotion != "second_hit":
            return self.backend.promotion == "always"
        if name in self.risen:
            del self.risen[name]
            return True
        self.risen[name] = None
        if len(self.risen) > _NAMES_REMEMBERED:
            self.risen.popitem(last=False)
        return False

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
        try:
            return await self._ask(
                "write",
                self.backend.write_many,
                requests,
                lambda error: WriteOutcome(PutStatus.UNKNOWN, None, error),
                not_asked=lambda error: WriteOutcome(PutStatus.SKIPPED, "unavailable", error),
            )
        finally:
            self._writes += 1
            for request in requests:
                self.absences.discard(request.name)

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`; what was absent a moment ago is not asked for again."""
        asked = [name for name in names if name not in self.absences]
        writes = self._writes
        outcomes = await self._ask(
            "stat",
            self.backend.stat_many,
            asked,
            lambda error: StatOutcome(GetStatus.UNKNOWN, 0, error),
        )
        if writes == self._writes:  # else it may be from before the end of a write
            for name, outcome in zip(asked, outcomes, strict=True):
                if outcome.status is GetStatus.MISS:
                    self.absences.add(name)
        if len(asked) == len(names):
            return outcomes
        answers = dict(zip(asked, outcomes, strict=True))
        for _ in range(len(names) - len(asked)):
            self.counts.count("stat", "known_absent")
        return [answers.get(name, _ABSENT) for name in names]

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        return await self._ask(
            "delete",
            self.backend.delete_many,
            names,
            lambda error: DeleteOutcome(DeleteStatus.UNKNOWN, error),
            not_asked=lambda error: DeleteOutcome(DeleteStatus.FAILED, error),
        )

    async def list_names(self, prefix: str) -> AsyncGenerator[StoredName, None]:
        """See `Backend.list_names`.

        Raises:
            TierUnavailableError: The tier has not been reached since the store was opened.
        """
        if not self._is_open:
            raise self._not_asked("list")
        listing = self.backend.list_names(prefix)
        try:
            async for stored in listing:
                yield stored
        finally:
            if isinstance(listing, AsyncGenerator):
                await listing.aclose()

    def stats(self, *, pending_writes: int, pending_bytes: int) -> TierStats:
        """Return its figures as they stand, with those of its writer; in any thread."""
        # Copying a dictionary is one step of the interpreter, iterating over it is not.
        latency = self.counts.latency.copy()
        return TierStats(
            outcomes=self.counts.outcomes.copy(),
            nbytes=self.counts.nbytes.copy(),
            latency_by_outcome={cell: of.copy() for cell, of in latency.items()},
            is_asked=not self.health.is_open,
            times_given_up=self.health.times_opened,
            probes=self.health.probes,
            pending_writes=pending_writes,
            pending_bytes=pending_bytes,
            usage_bytes=self.account.usage_bytes.copy(),
        )

    async def status(self) -> dict[str, Any]:
        """Return whether it works, by its last call and by its own word, and its own figures."""
        said: BackendStatus | None = None
        reason = ""
        if self._is_open:
            with anyio.move_on_after(self.backend.deadline_s):
                try:
                    said = await self.backend.status()
                except Exception as raised:  # noqa: BLE001 - a third party's backend
                    reason = f"status: {type(raised).__name__}: {raised}"
            if said is None:
                reason = reason or f"status: no answer within {self.backend.deadline_s} s"
            elif not said.is_healthy:
                reason = said.reason
        if self.health.failure is not None:
            reason = str(self.health.failure)
        return {
            "is_healthy": not reason,
            "reason": reason,
            "is_asked": not self.health.is_open,
            "is_draining": self.is_draining,
            "times_given_up": self.health.times_opened,
            "probes": self.health.probes,
            "fences": len(self.fences),
            "details": dict(said.details) if said is not None else {},
        }

    async def aclose(self) -> None:
        """Stop probing and close the backend; what it raises is logged."""
        await self.health.aclose()
        self._is_open = False
        try:
            await self.backend.aclose()
        except Exception:  # noqa: BLE001 - a third party's backend
            _log.exception("%s: closing failed", self.name, extra={"tier": self.name})

    async def _probe(self) -> TieredKVError | None:
        """Ask the tier something cheap, or open it; return why it does not answer, or None."""
        with anyio.move_on_after(self.backend.deadline_s):
            try:
                if not self._is_open:
                    await self.backend.open()
                    self._is_open = True
                    return None
                # A name that no cache on the way has heard of.
                (outcome,) = await self.backend.stat_many([f"tieredkv-probe-{os.urandom(8).hex()}"])
            except TieredKVError as error:
                return error
            except Exception as raised:  # noqa: BLE001 - a third party's backend
                return TierError(self.name, "probe", f"{type(raised).__name__}: {raised}")
            return outcome.error if outcome.status is GetStatus.UNKNOWN else None
        return self._late("probe")

    def _late(self, operation: str) -> TierUnavailableError:
        detail = f"no answer within {self.backend.deadline_s} s"
        return TierUnavailableError(self.name, operation, detail)

    def _not_asked(self, operation: str) -> TierUnavailableError:
        why = (
            f"it does not answer: {self.health.failure}" if self.health.is_open else "it is closed"
        )
        detail = f"not asked, since {why}"
        return TierUnavailableError(self.name, operation, detail)

    async def _ask(
        self,
        operation: str,
        call: Callable[[Sequence[Any]], Coroutine[Any, Any, list[OutcomeT]]],
        requests: Sequence[Any],
        failed: Callable[[TieredKVError], OutcomeT],
        *,
        not_asked: Callable[[TieredKVError], OutcomeT] | None = None,
        shielded: bool = False,
    ) -> list[OutcomeT]:
        """Call the backend.

        Args:
            operation: What it is called, in figures and errors.
            call: The backend's method.
            requests: Its argument.
            failed: Makes the outcome of a request that got no answer.
            not_asked: Makes that of one which was not sent; default `failed`.
            shielded: No deadline, no cancellation.
        """
        if not requests:
            return []
        if self.health.is_open or not self._is_open:
            self.counts.count(operation, "not_asked", times=len(requests))
            return [(not_asked or failed)(self._not_asked(operation))] * len(requests)
        with self._telemetry.span(f"{operation} {self.name}", len(requests)) as span:
            began = time.perf_counter()
            outcomes, error = await self._call(operation, call, requests, shielded=shielded)
            if not outcomes or len(outcomes) != len(requests):  # a third party's may be None
                error = error or TierError(self.name, operation, "an outcome is missing")
                outcomes = [failed(error)] * len(requests)
            duration_s = time.perf_counter() - began
            statuses: Counter[str] = Counter(outcome.status for outcome in outcomes)
            self._telemetry.answered(
                span, self.name, operation, statuses, duration_s=duration_s, error=error
            )
        moves_bytes = _MOVES_BYTES.get(operation)
        for status, times in statuses.items():
            nbytes = 0
            if status is moves_bytes:
                pairs = zip(requests, outcomes, strict=True)
                nbytes = sum(request.nbytes for request, o in pairs if o.status is status)
            self.counts.count(operation, status, nbytes, times=times)
            self.counts.time(operation, status, duration_s, times)
        self.account.note(operation, requests, outcomes)
        self._judge(operation, outcomes, answered=error is None)
        return outcomes

    async def _call(
        self,
        operation: str,
        call: Callable[[Sequence[Any]], Coroutine[Any, Any, list[OutcomeT]]],
        requests: Sequence[Any],
        *,
        shielded: bool,
    ) -> tuple[list[OutcomeT], TieredKVError | None]:
        """Call the backend; return what it answered, and why it did not."""
        error: TieredKVError | None = None
        outcomes: list[OutcomeT] = []
        with anyio.move_on_after(float("inf") if shielded else self.backend.deadline_s) as scope:
            try:
                if shielded:
                    outcomes = await self._detached.to_its_end(partial(call, requests))
                else:
                    outcomes = await call(requests)
            except (StoreClosedError, WrongLoopError) as raised:  # closed meanwhile, as a rule
                error = TierUnavailableError(self.name, operation, str(raised))
            except Exception as raised:  # noqa: BLE001 - a third party's backend
                self._raised.log(
                    "%s: %s: the backend raised, a defect of it",
                    self.name,
                    operation,
                    error=raised,
                    tier=self.name,
                    operation=operation,
                    outcome="unknown",
                )
                error = TierError(self.name, operation, f"{type(raised).__name__}: {raised}")
        if scope.cancelled_caught:
            error = self._late(operation)
        return outcomes, error

    def _judge(self, operation: str, outcomes: Sequence[OutcomeT], *, answered: bool) -> None:
        """Tell the tier's health how a call went."""
        errors = [outcome.error for outcome in outcomes if isinstance(outcome.error, TierError)]
        if not errors:
            self.health.succeeded(operation)
            return
        unreached = sum(isinstance(error, TierUnavailableError) for error in errors)
        self.health.failed(errors[0], answered=answered and unreached < len(outcomes))
