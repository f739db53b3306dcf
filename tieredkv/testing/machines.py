"""A hypothesis state machine that uses a backend as a store does, only worse.

Subclass `BackendMachine` with the hooks of the conformance kit; pytest takes its ``TestCase``::

    class MyMachine(BackendMachine):
        def make_backend(self): return MyBackend(self.tmp_path)
        def raw_put(self, name, value): ...
        def raw_get(self, name): ...
        def raw_delete(self, name): ...

    TestMyMachine = MyMachine.TestCase

Steps write, overwrite, read, look up, delete, list and reopen, in batches; some meet a fault
(`tieredkv.testing.faults`), some are cancelled. What each may answer, and what may be stored after
it, `tieredkv.testing.oracle` decides. Needs hypothesis and pytest.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tieredkv.errors import SizeMismatchError, TierError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus, ReadOutcome
from tieredkv.testing.backends.hooks import BackendHooks
from tieredkv.testing.backends.requests import PATIENCE_S, Landing, Source, give_up
from tieredkv.testing.content import content
from tieredkv.testing.faults import Fault, FaultKind, FaultyBackend
from tieredkv.testing.oracle import Content, Oracle
from tieredkv.testing.strategies import sizes, wire_names

__all__ = ["BackendMachine"]

ResultT = TypeVar("ResultT")

_PLACES = st.integers(0, 3)
_ITEMS = st.lists(st.tuples(_PLACES, sizes(70_000)), min_size=1, max_size=6)
_SILENT: tuple[FaultKind, ...] = ("noop", "torn", "truncated")


class BackendMachine(BackendHooks, RuleBasedStateMachine):
    """See the module.

    Each example has its own event loop, in a thread of its own, and each step makes one hop there.

    Attributes:
        loop: Name and options of the event loop, as for ``anyio.run``.
    """

    loop: ClassVar[tuple[str, Mapping[str, Any]]] = ("asyncio", {})

    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()
        self.tmp_path: Path = Path(tempfile.mkdtemp(prefix="tieredkv-machine-"))
        self._resources.callback(shutil.rmtree, self.tmp_path)
        kind, options = self.loop
        self._portal = self._resources.enter_context(start_blocking_portal(kind, dict(options)))
        self._oracle = Oracle()
        self._written = 0
        self._names: list[str] = []
        self._late: list[tuple[str, Content]] = []

    @initialize(sizes=st.dictionaries(wire_names(), sizes(70_000), min_size=2, max_size=4))
    def start(self, sizes: dict[str, int]) -> None:
        """Open a backend over a medium that holds some values already."""
        self._names = list(sizes)
        for place, size in enumerate(sizes.values()):
            _, ((name, value),) = self._sources([(place, size)])
            self.raw_put(name, value)
            self._oracle.answered(name, value)
        self._open()

    def teardown(self) -> None:
        """Close everything."""
        try:
            if self._names:
                self._run(self._backend.aclose)
        finally:
            self._resources.close()

    # -- everyday life ---------------------------------------------------------------------------

    @rule(items=_ITEMS)
    def write(self, items: list[tuple[int, int]]) -> None:
        """Write a batch, in which names may come twice."""
        sources, values = self._sources(items)
        outcomes = self._run(self._backend.write_many, [source.request() for source in sources])
        for place, ((name, value), outcome) in enumerate(zip(values, outcomes, strict=True)):
            if any(name == later for later, _ in values[place + 1 :]):
                assert (outcome.status, outcome.reason) == (PutStatus.SKIPPED, "superseded")
            else:
                assert outcome.status is PutStatus.STORED, outcome
                self._oracle.answered(name, value)

    @rule(wants=st.lists(st.tuples(_PLACES, st.sampled_from([0, 0, 0, 0, 1, -1])), max_size=6))
    def read(self, wants: list[tuple[int, int]]) -> None:
        """Read a batch, in which names may come twice and sizes may be wrong."""
        landings = [self._landing(place, off) for place, off in wants]
        outcomes = self._run(self._read, landings)
        for landing, outcome in zip(landings, outcomes, strict=True):
            self._judge(landing, outcome)

    @rule(places=st.lists(_PLACES, max_size=6))
    def stat(self, places: list[int]) -> None:
        """Look a batch up."""
        names = [self._name(place) for place in places]
        for name, outcome in zip(names, self._run(self._backend.stat_many, names), strict=True):
            assert outcome.status in (GetStatus.HIT, GetStatus.MISS), outcome
            size = outcome.stored_bytes if outcome.status is GetStatus.HIT else None
            assert size in self._oracle.sizes(name)

    @rule(places=st.lists(_PLACES, min_size=1, max_size=2))
    def delete(self, places: list[int]) -> None:
        """Delete a batch."""
        names = sorted({self._name(place) for place in places})
        outcomes = self._run(self._backend.delete_many, names)
        for name, outcome in zip(names, outcomes, strict=True):
            assert outcome.status in self._oracle.deletes(name), outcome
            self._oracle.answered(name, None)

    @rule(place=_PLACES, length=st.integers(0, 3))
    def listing(self, place: int, length: int) -> None:
        """List the names that begin like one of them."""
        prefix = self._name(place)[:length]

        async def entries() -> list[tuple[str, int]]:
            listed = self._backend.list_names(prefix)
            return [(entry.name, entry.stored_bytes) async for entry in listed]

        listed = self._run(entries)
        assert len(dict(listed)) == len(listed), "a name is listed twice"
        self._oracle.check_listing(self._names, prefix, dict(listed))

    @rule()
    def reopen(self) -> None:
        """Close the backend, with whatever is under way, and go on with a new one."""
        self._run(self._backend.aclose)
        self._oracle.landed()
        self._late.clear()  # closing has dropped them
        self._open()

    @rule(item=st.tuples(_PLACES, sizes(70_000)))
    def read_while_writing(self, item: tuple[int, int]) -> None:
        """Read a name while it is written."""
        ((source,), ((name, value),)) = self._sources([item])
        landings = [self._landing(item[0]), self._landing(item[0], wanted=len(value))]
        outcomes: list[ReadOutcome] = []

        async def both() -> None:
            async def read() -> None:
                outcomes.extend(await self._read(landings))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                (written,) = await self._backend.write_many([source.request()])
                assert written.status is PutStatus.STORED, written

        before = self._oracle.possible(name)
        self._run(both)
        self._oracle.answered(name, value)
        for landing, outcome in zip(landings, outcomes, strict=True):
            self._judge(landing, outcome, also=before)

    # -- bad days --------------------------------------------------------------------------------

    @rule(items=_ITEMS, kind=st.sampled_from(("raise", *_SILENT)))
    def write_badly(self, items: list[tuple[int, int]], kind: FaultKind) -> None:
        """Write a batch in which the first name meets a fault."""
        first = items[0][0]
        items = [items[0], *(item for item in items if self._name(item[0]) != self._name(first))]
        sources, values = self._sources(items)
        name, value = values[0]
        self._backend.inject(Fault("write", kind, name, error=TierError))
        outcomes = self._run(self._backend.write_many, [source.request() for source in sources])
        if kind == "raise":
            assert outcomes[0].status is PutStatus.FAILED
            assert isinstance(outcomes[0].error, TierError)
        else:
            assert outcomes[0].status is PutStatus.STORED
            if kind != "noop":
                self._oracle.answered(name, _damaged(value, kind))
        for name, value in dict(values[1:]).items():
            self._oracle.answered(name, value)

    @rule(place=_PLACES, kind=st.sampled_from(("raise", *_SILENT)), neighbours=st.lists(_PLACES))
    def read_badly(self, place: int, kind: FaultKind, neighbours: list[int]) -> None:
        """Read a batch in which the first name meets a fault."""
        name = self._name(place)
        bad = self._landing(place)
        landings = [self._landing(other) for other in neighbours if self._name(other) != name]
        self._backend.inject(Fault("read", kind, name))
        outcome, *outcomes = self._run(self._read, [bad, *landings])
        assert bad.guards_hold
        if kind == "raise":
            assert outcome.status is GetStatus.UNKNOWN
            assert isinstance(outcome.error, TierError)
        elif outcome.status in (GetStatus.HIT, GetStatus.CORRUPT):
            assert bad.nbytes in self._oracle.sizes(name)
            genuine = self._oracle.is_genuine(name, bad.value)  # damage may undo damage
            assert genuine == (outcome.status is GetStatus.HIT)
        else:  # there was nothing to damage
            self._judge(bad, outcome)
        for landing, other in zip(landings, outcomes, strict=True):
            self._judge(landing, other)

    @rule(place=_PLACES, kind=st.sampled_from(("raise", "noop")))
    def delete_badly(self, place: int, kind: FaultKind) -> None:
        """Delete a name and meet a fault."""
        name = self._name(place)
        self._backend.inject(Fault("delete", kind, name, error=TierError))
        (outcome,) = self._run(self._backend.delete_many, [name])
        if kind == "noop":
            assert outcome.status is DeleteStatus.DELETED
        else:
            assert outcome.status is DeleteStatus.FAILED

    @rule(place=_PLACES)
    def stat_badly(self, place: int) -> None:
        """Look a name up and meet a fault."""
        self._backend.inject(Fault("stat", "raise", self._name(place)))
        (outcome,) = self._run(self._backend.stat_many, [self._name(place)])
        assert outcome.status is GetStatus.UNKNOWN

    @rule(
        operation=st.sampled_from(("read", "write", "delete")),
        items=_ITEMS,
        steps=st.integers(0, 6),
        close=st.booleans(),
    )
    def give_up(
        self, operation: str, items: list[tuple[int, int]], steps: int, *, close: bool
    ) -> None:
        """Cancel a call after some steps of the event loop, and perhaps close the backend."""
        names = sorted({self._name(place) for place, _ in items})
        if operation == "read":
            landing = self._landing(items[0][0])
            self._run(self._give_up, lambda: self._read([landing]), steps)
            self._run(landing.returned)
            assert landing.guards_hold
        elif operation == "write":
            sources, values = self._sources(items)
            requests = [source.request() for source in sources]
            self._run(self._give_up, lambda: self._backend.write_many(requests), steps)
            for name, value in dict(values).items():
                self._oracle.unanswered(name, value)
        else:
            self._run(self._give_up, lambda: self._backend.delete_many(names), steps)
            for name in names:
                self._oracle.unanswered(name, None)
        if close:
            self.reopen()

    @rule(item=st.tuples(_PLACES, sizes(70_000)), kind=st.sampled_from(("late", "hang")))
    def write_without_an_answer(self, item: tuple[int, int], kind: FaultKind) -> None:
        """Give up a write that the medium does not answer; a late one is done in the end."""
        ((source,), ((name, value),)) = self._sources([item])
        self._backend.inject(Fault("write", kind, name))
        self._run(self._give_up, lambda: self._backend.write_many([source.request()]), None)
        if kind == "late":
            self._late.append((name, value))

    @rule(place=_PLACES, kind=st.sampled_from(("late", "hang")))
    def delete_without_an_answer(self, place: int, kind: FaultKind) -> None:
        """Give up a delete that the medium does not answer; a late one is done in the end."""
        name = self._name(place)
        self._backend.inject(Fault("delete", kind, name))
        self._run(self._give_up, lambda: self._backend.delete_many([name]), None)
        if kind == "late":
            self._late.append((name, None))

    @rule()
    def land(self) -> None:
        """Let everything late take effect."""
        self._run(self._backend.land)
        for name, new in self._late:
            self._oracle.answered(name, new)
        self._late.clear()

    @invariant()
    def the_medium_holds_what_it_may(self) -> None:
        """Look at the medium past the backend."""
        for name in self._names:
            stored = self.raw_get(name)
            assert stored in self._oracle.possible(name), f"{name!r} holds what it must not"
            self._oracle.observed(name, stored)

    # -- how -------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._backend = FaultyBackend(self.make_backend())
        self._run(self._backend.open)

    def _run(self, call: Callable[..., Awaitable[ResultT]], *arguments: Any) -> ResultT:
        async def run() -> ResultT:
            with anyio.fail_after(PATIENCE_S):
                return await call(*arguments)

        return self._portal.call(run)

    def _name(self, place: int) -> str:
        return self._names[place % len(self._names)]

    def _sources(
        self, items: list[tuple[int, int]]
    ) -> tuple[list[Source], list[tuple[str, bytes]]]:
        values: list[tuple[str, bytes]] = []
        for place, size in items:
            self._written += 1
            values.append((self._name(place), content(self._written, size)))
            self._oracle.intends(*values[-1])
        return [Source(*value) for value in values], values

    def _landing(self, place: int, off: int = 0, *, wanted: int | None = None) -> Landing:
        """Return memory for a read of the size that the name has, as far as that is known."""
        name = self._name(place)
        known = sorted(size for size in self._oracle.sizes(name) if size is not None)
        if wanted is None:
            wanted = max(0, (known[-1] if known else 10) + off)
        split = wanted // 2 if self._backend.capabilities.scatter else None

        def answer(landed: bytes) -> GetStatus:
            genuine = self._oracle.is_genuine(name, landed)
            return GetStatus.HIT if genuine else GetStatus.CORRUPT

        return Landing(name, wanted, answer=answer, split_at=split)

    async def _read(self, landings: list[Landing]) -> list[ReadOutcome]:
        return await self._backend.read_many([landing.request() for landing in landings])

    def _judge(self, landing: Landing, outcome: ReadOutcome, also: Iterable[Content] = ()) -> None:
        """Compare the outcome of a read with what it may be; `also` may be stored, too."""
        name, wanted = landing.name, landing.nbytes
        allowed = self._oracle.reads(name, wanted, also)
        assert landing.guards_hold
        match outcome.status:
            case GetStatus.MISS:
                assert landing.is_untouched, f"a miss of {name!r} has touched its buffer"
                assert (GetStatus.MISS, None) in allowed, f"{name!r} is missed"
            case GetStatus.HIT | GetStatus.CORRUPT:
                assert (outcome.status, landing.value) in allowed, f"{name!r}: {outcome}"
            case _:
                assert isinstance(outcome.error, SizeMismatchError), f"{name!r}: {outcome}"
                assert outcome.error.wanted == wanted
                stored = {len(content) for _, content in allowed if content is not None}
                assert outcome.error.stored in stored - {wanted}, f"{name!r}: {outcome}"

    async def _give_up(self, call: Callable[[], Awaitable[object]], steps: int | None) -> None:
        """Cancel a call after some steps of the event loop, or once a fault holds it (None)."""

        async def until() -> None:
            if steps is None:
                await self._backend.until_held(held + 1)
            else:
                for _ in range(steps):
                    await checkpoint()

        held = self._backend.num_held
        await give_up(call, until)


def _damaged(value: bytes, kind: FaultKind) -> bytes:
    """Return what the description of a fault says is stored."""
    if kind == "torn":
        torn = -(-len(value) // 2)
        return bytes(byte ^ 0xFF for byte in value[:torn]) + value[torn:]
    return value[: len(value) // 2]
