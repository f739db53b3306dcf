"""A backend that fails on schedule: any other backend, and what goes wrong with it.

::

    backend = FaultyBackend(DiskBackend(path))
    backend.inject(Fault("write", "torn"), Fault("read", "raise", name=wire_name, times=None))

For tests of what sits above backends, so a fault is what a store would see of a bad medium. What
each one does to an operation is in the table of `Fault`.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import anyio
import attrs

from tieredkv.backends.base import (
    Backend,
    BackendStatus,
    Capabilities,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.config import choice, whole
from tieredkv.errors import ConfigError, TierError, TierUnavailableError
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
)

__all__ = ["FAULT_KINDS", "Fault", "FaultKind", "FaultyBackend", "FaultyOperation"]

FaultyOperation: TypeAlias = Literal["open", "read", "write", "stat", "delete", "list"]
FaultKind: TypeAlias = Literal["raise", "noop", "torn", "truncated", "late", "hang"]

FAULT_KINDS: Final[Mapping[FaultyOperation, tuple[FaultKind, ...]]] = {
    "open": ("raise",),
    "read": ("raise", "noop", "torn", "truncated", "late", "hang"),
    "write": ("raise", "noop", "torn", "truncated", "late", "hang"),
    "stat": ("raise", "late", "hang"),
    "delete": ("raise", "noop", "late", "hang"),
    "list": ("raise",),
}
"""What can go wrong with what."""

RequestT = TypeVar("RequestT")
OutcomeT = TypeVar("OutcomeT")

_INVERTED: Final = bytes(255 - byte for byte in range(256))


@attrs.frozen
class Fault:
    """What goes wrong with some requests; each request of a batch counts by itself.

    =============  =============================================================================
    kind           effect
    =============  =============================================================================
    ``raise``      Nothing is done; the outcome has an error.
    ``noop``       Nothing is done, and success is reported; a read leaves its buffers alone.
    ``torn``       The first half, rounded up, has every bit inverted. Success is reported.
    ``truncated``  Only the first half, rounded down, is written, or lands. Success is reported.
    ``late``       No answer, and nothing done, until `FaultyBackend.land`. Also if the caller has
                   given up meanwhile; then the request's memory is still touched.
    ``hang``       No answer, and nothing done, for good.
    =============  =============================================================================

    A damaged read is reported as what its check says of it; where there is no value of the wanted
    size there is nothing to damage. Other requests of the batch take effect at once.

    Attributes:
        operation: What goes wrong.
        kind: How; not every operation knows every kind, see `FAULT_KINDS`.
        name: Only with this wire name; None for any.
        after: So many requests that match go well first.
        times: Then so many have the fault; None for all.
        error: Type of the error of ``raise``. A write or delete has FAILED if it is not a
            `TierUnavailableError`, else UNKNOWN.
    """

    operation: FaultyOperation
    kind: FaultKind
    name: str | None = None
    after: int = 0
    times: int | None = 1
    error: type[TierError] = TierUnavailableError

    def __attrs_post_init__(self) -> None:
        choice(self.operation, field="operation", choices=get_args(FaultyOperation))
        choice(self.kind, field="kind", choices=FAULT_KINDS[self.operation])
        whole(self.after, field="after", low=0)
        if self.times is not None:
            whole(self.times, field="times", low=1)
        if self.name is not None and self.operation in ("open", "list"):
            raise ConfigError(f"name={self.name!r}: {self.operation!r} is not about one name")


class _Armed:
    """A fault and how many requests have matched it."""

    __slots__ = ("fault", "matched")

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.matched = 0

    def meets(self, operation: FaultyOperation, name: str | None) -> bool:
        if self.fault.operation != operation or self.fault.name not in (None, name):
            return False
        self.matched += 1
        return self.matched > self.fault.after

    @property
    def is_over(self) -> bool:
        times = self.fault.times
        return times is not None and self.matched >= self.fault.after + times


class _Held:
    """A request without an answer."""

    __slots__ = ("answered", "ask", "kind", "outcome", "request")

    def __init__(
        self,
        kind: FaultKind,
        ask: Callable[[list[Any]], Coroutine[Any, Any, list[Any]]],
        request: object,
        outcome: object,
    ) -> None:
        self.kind = kind
        self.ask = ask
        self.request = request
        self.outcome = outcome
        self.answered = anyio.Event()


class FaultyBackend(Backend):
    """Passes calls on to another backend, unless a fault is scheduled.

    It has the other's name, capabilities, deadline and so on, and belongs to one event loop as it
    does. Of several faults that match a request the one injected first takes effect.

    Attributes:
        inner: The other backend; opened and closed with this one.
    """

    def __init__(self, inner: Backend, faults: Iterable[Fault] = ()) -> None:
        """Wrap a backend that is not open yet."""
        self.inner: Backend = inner
        self.capabilities: Capabilities = inner.capabilities
        self.deadline_s: float = inner.deadline_s
        self.has_own_space: bool = inner.has_own_space
        self._set_up(inner.name, inner.write_on, inner.promotion)
        self._armed: list[_Armed] = []
        self._held: list[_Held] = []
        self._arrival = anyio.Event()
        self.inject(*faults)

    # -- the schedule ----------------------------------------------------------------------------

    def inject(self, *faults: Fault) -> None:
        """Schedule faults, behind those that are already scheduled."""
        self._armed += [_Armed(fault) for fault in faults]

    def calm(self) -> None:
        """Drop every fault that has not been met; what is held stays so."""
        self._armed.clear()

    @property
    def num_held(self) -> int:
        """Requests that are late or hang now."""
        return len(self._held)

    async def until_held(self, count: int = 1) -> None:
        """Wait until at least so many requests are late or hang."""
        while len(self._held) < count:
            if self._arrival.is_set():
                self._arrival = anyio.Event()
            await self._arrival.wait()

    async def land(self) -> None:
        """Let everything late take effect, in the order of its calls, and be answered."""
        late = [held for held in self._held if held.kind == "late"]
        for held in late:
            self._held.remove(held)
            (held.outcome,) = await held.ask([held.request])
            held.answered.set()

    # -- the contract ----------------------------------------------------------------------------

    async def open(self) -> None:
        """See `Backend.open`."""
        if (fault := self._meet("open")) is not None:
            raise self._error(fault)
        self._arrival = anyio.Event()
        await self.inner.open()

    async def aclose(self) -> None:
        """See `Backend.aclose`; what is late or hangs is answered UNKNOWN and never done."""
        held, self._held = self._held, []
        for one in held:
            one.answered.set()
        await self.inner.aclose()

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """See `Backend.read_many`."""
        faults = [self._meet("read", request.name) for request in requests]

        def failed(error: TierError) -> ReadOutcome:
            return ReadOutcome(GetStatus.UNKNOWN, error)

        return await self._call(self.inner.read_many, requests, faults, failed, damage=_damage_read)

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """See `Backend.write_many`."""
        last = {request.name: request for request in requests}
        faults = [
            self._meet("write", request.name) if request is last[request.name] else None
            for request in requests
        ]
        if not any(faults):
            return await self.inner.write_many(requests)
        left = list(last.values())

        def failed(error: TierError) -> WriteOutcome:
            unknown = isinstance(error, TierUnavailableError)
            return WriteOutcome(PutStatus.UNKNOWN if unknown else PutStatus.FAILED, None, error)

        by_request = dict(zip(requests, faults, strict=True))
        outcomes = await self._call(
            self.inner.write_many,
            left,
            [by_request[request] for request in left],
            failed,
            damage=_damage_write,
            done=WriteOutcome(PutStatus.STORED),
        )
        answers = dict(zip(left, outcomes, strict=True))
        superseded = WriteOutcome(PutStatus.SKIPPED, "superseded")
        return [answers.get(request, superseded) for request in requests]

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`."""
        faults = [self._meet("stat", name) for name in names]

        def failed(error: TierError) -> StatOutcome:
            return StatOutcome(GetStatus.UNKNOWN, 0, error)

        return await self._call(self.inner.stat_many, names, faults, failed)

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        faults = [self._meet("delete", name) for name in names]

        def failed(error: TierError) -> DeleteOutcome:
            unknown = isinstance(error, TierUnavailableError)
            return DeleteOutcome(DeleteStatus.UNKNOWN if unknown else DeleteStatus.FAILED, error)

        done = DeleteOutcome(DeleteStatus.DELETED)
        return await self._call(self.inner.delete_many, names, faults, failed, done=done)

    async def list_names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        """See `Backend.list_names`."""
        if (fault := self._meet("list")) is not None:
            raise self._error(fault)
        entries = self.inner.list_names(prefix)
        try:
            async for entry in entries:
                yield entry
        finally:
            if isinstance(entries, AsyncGenerator):
                await entries.aclose()

    async def status(self) -> BackendStatus:
        """See `Backend.status`."""
        return await self.inner.status()

    # -- faults at work --------------------------------------------------------------------------

    def _meet(self, operation: FaultyOperation, name: str | None = None) -> Fault | None:
        met = [armed.fault for armed in self._armed if armed.meets(operation, name)]
        self._armed = [armed for armed in self._armed if not armed.is_over]
        return met[0] if met else None

    def _error(self, fault: Fault) -> TierError:
        return fault.error(self.name, fault.operation, "a fault was injected")

    async def _call(
        self,
        ask: Callable[[list[RequestT]], Coroutine[Any, Any, list[OutcomeT]]],
        requests: Sequence[RequestT],
        faults: Sequence[Fault | None],
        failed: Callable[[TierError], OutcomeT],
        *,
        damage: Callable[[RequestT, FaultKind], RequestT] | None = None,
        done: OutcomeT | None = None,
    ) -> list[OutcomeT]:
        """Pass on what has no fault and, damaged, what has; answer the rest, or do not."""
        outcomes: dict[int, OutcomeT] = {}
        passed: dict[int, RequestT] = {}
        waits: dict[int, _Held] = {}
        for place, (request, fault) in enumerate(zip(requests, faults, strict=True)):
            if fault is None:
                passed[place] = request
            elif fault.kind in ("late", "hang"):
                closed = TierUnavailableError(self.name, fault.operation, "closed while it waited")
                waits[place] = _Held(fault.kind, ask, request, failed(closed))
            elif fault.kind == "noop" and done is not None:
                outcomes[place] = done
            elif fault.kind == "raise" or damage is None:
                outcomes[place] = failed(self._error(fault))
            else:
                passed[place] = damage(request, fault.kind)
        answers = await ask(list(passed.values()))
        outcomes |= zip(passed, answers, strict=True)
        if waits:
            outcomes |= await self._wait(waits)
        return [outcomes[place] for place in range(len(requests))]

    async def _wait(self, waits: Mapping[int, _Held]) -> dict[int, Any]:
        self._held += waits.values()
        self._arrival.set()
        try:
            for held in waits.values():
                await held.answered.wait()
        finally:
            abandoned = [held for held in waits.values() if held.kind == "hang"]
            self._held = [held for held in self._held if held not in abandoned]
        return {place: held.outcome for place, held in waits.items()}


class _DamagedRead:
    """Spoils what has landed before the check sees it."""

    def __init__(self, request: ReadRequest, kind: FaultKind) -> None:
        self._buffers = request.buffers
        self._before = b"".join(request.buffers)
        self._check = request.check
        self._kind: FaultKind = kind

    def feed(self, landed: memoryview) -> None:
        """Keep it from the check, which could not see the damage any more."""

    def result(self) -> GetStatus:
        left = memoryview(_damaged(b"".join(self._buffers), self._kind, self._before))
        for buffer in self._buffers:
            buffer[:] = left[: buffer.nbytes]
            left = left[buffer.nbytes :]
        return self._check.result()


def _damage_read(request: ReadRequest, kind: FaultKind) -> ReadRequest:
    return attrs.evolve(request, check=_DamagedRead(request, kind))


def _damage_write(request: WriteRequest, kind: FaultKind) -> WriteRequest:
    def seal() -> memoryview:
        return memoryview(_damaged(bytes(request.seal()), kind, b""))

    nbytes = request.nbytes // 2 if kind == "truncated" else request.nbytes
    return WriteRequest(request.name, nbytes, seal, request.ttl_s)


def _damaged(value: bytes, kind: FaultKind, before: bytes) -> bytes:
    """Return what is left of a value; `before` is what lay in its place."""
    if kind == "torn":
        torn = (len(value) + 1) // 2
        return value[:torn].translate(_INVERTED) + value[torn:]
    kept = len(value) // 2 if kind == "truncated" else 0
    return value[:kept] + before[kept:]
