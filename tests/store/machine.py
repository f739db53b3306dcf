"""A state machine over a store of L1 and a few tiers, all of which fail on schedule.

The oracle knows, for each key, what a read may bring. It shares nothing with the store:

- a put or delete that no fault met leaves one answer: the new value, or none;
- after one that met a fault the new value or nothing may be found, and never again what was before,
  also when it lands late; but for a tier that claims to have done what it has not;
- one that was cancelled adds its answer to those before, since it may have begun or not;
- a copy that was damaged may be dropped, so nothing may be found.

Every lease held across steps is compared with what it was at first. At the end the store's own
figures are compared with a listing of every tier.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.store.inside import inside
from tieredkv import (
    DeleteStatus,
    GetResult,
    GetResults,
    GetStatus,
    L1Config,
    MemoryObject,
    PutResult,
    PutStatus,
    StoreStats,
    TieredStore,
)
from tieredkv.backends import Backend, DiskBackend
from tieredkv.backends.disk.index import room_bytes
from tieredkv.config import KiB, MiB
from tieredkv.errors import OutOfMemoryError
from tieredkv.frames import TRAILER_BYTES
from tieredkv.keys import wire_name_of
from tieredkv.testing.content import content
from tieredkv.testing.faults import Fault, FaultKind, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.testing.strategies import sizes

ResultT = TypeVar("ResultT")

KEYS = ("a", "b", "llama@000000ff@0@0001", "%")
PATIENCE_S = 30.0
_MAX_BYTES = 40_000
_MAX_LATE = 2
_MAX_LEASES = 2

_PLACES = st.integers(0, len(KEYS) - 1)
_SOME = st.lists(_PLACES, min_size=1, max_size=5)
_ITEMS = st.lists(st.tuples(_PLACES, sizes(_MAX_BYTES)), min_size=1, max_size=4)
_TIERS = st.integers(0, 5)  # modulo their number
_GOOD = frozenset({PutStatus.STORED, PutStatus.PENDING})


class StoreMachine(RuleBasedStateMachine):
    """See the module. Each example has its own event loop, in a thread of its own."""

    loop: ClassVar[tuple[str, Mapping[str, Any]]] = ("asyncio", {})

    def make_tiers(self) -> list[Backend]:
        """Return the backends below L1, not open."""
        return [MemoryBackend(), DiskBackend(self.path)]

    def __init__(self) -> None:
        super().__init__()
        self._resources = ExitStack()
        self.path = Path(tempfile.mkdtemp(prefix="tieredkv-store-machine-"))
        self._resources.callback(shutil.rmtree, self.path)
        kind, options = self.loop
        self._portal = self._resources.enter_context(start_blocking_portal(kind, dict(options)))
        self._written = 0
        self._may: dict[str, set[bytes | None]] = {key: {None} for key in KEYS}
        self._sizes: dict[str, set[int]] = {key: set() for key in KEYS}
        self._damaged: set[str] = set()
        self._late: list[str] = []
        self._leases: list[tuple[MemoryObject, bytes]] = []

    @initialize()
    def start(self) -> None:
        self._tiers = [FaultyBackend(tier) for tier in self.make_tiers()]
        self._store = TieredStore(
            L1Config(capacity=96 * KiB, overflow=MiB), self._tiers, max_pending=4 * MiB
        )
        self._run(self._store.__aenter__)

    def teardown(self) -> None:
        try:
            if not hasattr(self, "_store"):
                return
            for lease, _ in self._leases:
                lease.release()
            try:
                self._run(self._end)
            finally:
                self._run(self._store.aclose)
        finally:
            self._resources.close()

    async def _end(self) -> None:
        for tier in self._tiers:
            await tier.land()
        assert (await self._store.flush()).ok
        await self._settled()
        await self._check_accounts()
        inside(self._store).l1.clear()
        stats = await self._settled()
        assert (stats.l1.used_bytes, stats.l1.overflow_used_bytes) == (0, 0)
        assert (stats.l1.leases, stats.pending_bytes) == (0, 0)

    async def _settled(self) -> StoreStats:
        """Wait until no load and no worker holds memory any more."""
        while (stats := self._store.stats()).blocks_held_by_views or stats.loads_in_flight:
            await checkpoint()
        return stats

    async def _check_accounts(self) -> None:
        """Compare what the store counts with what its tiers list."""
        stats, l1 = self._store.stats(), inside(self._store).l1
        resident = [str(key) async for key in self._store.keys("l1")]
        blocks = 0
        for key in resident:
            lease = self._store.get_nowait(key)
            assert lease is not None
            with lease:
                assert bytes(lease) in self._may[key], f"L1 has wrong bytes for {key!r}"
                blocks += l1.arena.block_bytes(lease.nbytes)
        assert stats.l1.objects == len(resident)
        assert stats.l1.used_bytes == sum(stats.l1.usage_bytes.values()) == blocks
        for tier in self._tiers:
            listed = {entry.name: entry.stored_bytes async for entry in tier.list_names()}
            known = {wire_name_of(key): self._sizes[key] for key in KEYS}
            for name, stored_bytes in listed.items():
                assert stored_bytes in known[name], f"{name!r} has a size that it never had"
            said = await tier.stat_many(list(known))
            for name, outcome in zip(known, said, strict=True):
                size = outcome.stored_bytes if outcome.status is GetStatus.HIT else None
                assert size == listed.get(name)
            self.check_books((await tier.status()).details, tier.name, listed)

    def check_books(
        self, details: Mapping[str, object], tier: str, listed: Mapping[str, int]
    ) -> None:
        """Compare what a backend counts by itself with its names and sizes."""
        if tier == "disk":
            assert details["objects"] == len(listed)
            assert details["used_bytes"] == sum(map(room_bytes, listed.values()))

    # -- everyday life ---------------------------------------------------------------------------

    @rule(items=_ITEMS)
    def put(self, items: list[tuple[int, int]]) -> None:
        values = self._values(items)
        results = self._run(self._store.put_many, values)
        for (key, value), result in zip(values, results, strict=True):
            self._was_put(key, value, result)

    @rule(item=st.tuples(_PLACES, sizes(_MAX_BYTES)))
    def put_in_place(self, item: tuple[int, int]) -> None:
        ((key, value),) = self._values([item])

        async def fill() -> PutResult | None:
            async with self._store.reserve(key, len(value)) as slot:
                slot.view[:] = value
            return slot.result

        result = self._run(fill)
        assert result is not None
        self._was_put(key, value, result)

    @rule(places=_SOME)
    def get(self, places: list[int]) -> None:
        keys = [KEYS[place] for place in places]
        with self._run(self._store.get_many, keys) as results:
            for result in results:
                self._judge(result)

    @rule(place=_PLACES)
    def get_into(self, place: int) -> None:
        known = [value for value in self._may[KEYS[place]] if value is not None]
        out = bytearray(len(known[0]) if known else 5)
        (result,) = self._run(self._store.get_into_many, [(KEYS[place], out)])
        if result.status is GetStatus.HIT:
            assert bytes(out) in self._may[KEYS[place]]
        elif result.status is not GetStatus.REJECTED:
            self._judge(result)

    @precondition(lambda self: len(self._leases) < _MAX_LEASES)
    @rule(place=_PLACES)
    def hold(self, place: int) -> None:
        lease = self._run(self._store.get, KEYS[place])
        if lease is not None:
            self._leases.append((lease, bytes(lease)))
            assert self._leases[-1][1] in self._may[KEYS[place]]

    @precondition(lambda self: self._leases)
    @rule()
    def release(self) -> None:
        self._leases.pop(0)[0].release()

    @rule(places=_SOME)
    def stat(self, places: list[int]) -> None:
        for result in self._run(self._store.stat_many, [KEYS[place] for place in places]):
            may = self._may[str(result.key)]
            if result.info is not None:
                known = {len(value) for value in may if value is not None}
                assert result.info.nbytes in known or str(result.key) in self._damaged
            else:
                unanswered = str(result.key) in self._damaged
                assert unanswered or result.status is GetStatus.MISS, result
                assert None in may

    @rule(places=_SOME, first=_PLACES)
    def look_up_and_load(self, places: list[int], first: int) -> None:
        keys = [KEYS[place] for place in (first, *places)]

        async def load() -> list[GetResult]:
            async with self._store.lookup(keys) as found:
                if found.hits[0]:
                    (deleted,) = await self._store.delete_many([keys[0]])
                    assert deleted.status is DeleteStatus.PINNED
                return list(await found.load())

        with GetResults(self._run(load)) as results:
            for result in results:
                self._judge(result)

    @rule(places=_SOME, policy=st.sampled_from(("prefix", "full")))
    def prefetch(self, places: list[int], policy: Any) -> None:
        keys = [KEYS[place] for place in places]

        async def load() -> None:
            result = await self._store.prefetch(keys, policy=policy)
            for key, one in zip(keys, result.results, strict=True):
                lease = self._store.get_nowait(key)
                assert lease is not None or one.status is not GetStatus.HIT
                if lease is not None:
                    with lease:
                        assert bytes(lease) in self._may[key]

        self._run(load)

    @rule(places=_SOME)
    def delete(self, places: list[int]) -> None:
        keys = [KEYS[place] for place in places]
        for result in self._run(self._store.delete_many, keys):
            assert result.status in (DeleteStatus.DELETED, DeleteStatus.ABSENT), result
            self._may[str(result.key)] = {None}
            self._damaged.discard(str(result.key))

    @precondition(lambda self: not self._late)
    @rule(item=st.tuples(_PLACES, sizes(_MAX_BYTES)), tier=_TIERS)
    def read_before_it_is_written(self, item: tuple[int, int], tier: int) -> None:
        """Read a value that L1 has dropped while one tier has yet to take it."""
        ((key, value),) = self._values([item])
        self._tier(tier).inject(Fault("write", "late", wire_name_of(key)))

        async def read() -> tuple[PutResult, GetResults]:
            put = await self._store.put(key, value)
            await self._store.clear()
            results = await self._store.get_many([key])
            if PutStatus.PENDING in {outcome.status for outcome in put.tiers.values()}:
                await self._tier(tier).until_held()
            await self._tier(tier).land()
            await self._store.flush()
            return put, results

        put, results = self._run(read)
        with results:
            self._tier(tier).calm()
            self._was_put(key, value, put)
            self._judge(results[0])

    @rule()
    def evict(self) -> None:
        self._run(self._store.clear)

    @rule()
    def flush(self) -> None:
        assert self._run(self._store.flush).ok

    # -- bad days --------------------------------------------------------------------------------

    @rule(
        item=st.tuples(_PLACES, sizes(_MAX_BYTES)),
        tier=_TIERS,
        kind=st.sampled_from(("raise", "noop", "torn", "truncated")),
    )
    def put_badly(self, item: tuple[int, int], tier: int, kind: FaultKind) -> None:
        ((key, value),) = self._values([item])
        self.flush()  # else what waits is superseded, and a fault uncovers what lies below
        self._tier(tier).inject(Fault("write", kind, wire_name_of(key)))
        result = self._run(self._put_and_flush, key, value)
        self._calm(tier)
        self._was_put_badly(key, value, result, claimed=kind == "noop")
        self._damaged.add(key)

    @precondition(lambda self: len(self._late) < _MAX_LATE)
    @rule(item=st.tuples(_PLACES, sizes(_MAX_BYTES)), tier=_TIERS)
    def put_late(self, item: tuple[int, int], tier: int) -> None:
        ((key, value),) = self._values([item])
        self.flush()  # only this write shall be too late
        self._tier(tier).inject(Fault("write", "late", wire_name_of(key)))
        self._tier(tier).deadline_s = 0.01
        result = self._run(self._put_and_flush, key, value)
        self._calm(tier)  # without memory for it the put has not met the fault
        self._was_put_badly(key, value, result)
        self._damaged.add(key)
        self._late.append(key)

    @rule()
    def land(self) -> None:
        for tier in self._tiers:
            self._run(tier.land)
        for key in self._late:
            self._may[key].add(None)  # what it replaced is gone
        self._late.clear()

    @rule(
        place=_PLACES,
        tier=_TIERS,
        kind=st.sampled_from(("raise", "noop", "torn", "truncated", "late")),
    )
    def get_badly(self, place: int, tier: int, kind: FaultKind) -> None:
        key = KEYS[place]
        self.flush()
        self.evict()
        self._tier(tier).inject(Fault("read", kind, wire_name_of(key)))
        self._tier(tier).deadline_s = 0.01 if kind == "late" else 5.0
        with self._run(self._store.get_many, [key]) as results:
            self._calm(tier)
            if kind in ("noop", "torn", "truncated"):
                self._may[key].add(None)  # the copy is dropped
            self._judge(results[0], faulty=True)
        self.land()

    @rule(place=_PLACES, tier=_TIERS, kind=st.sampled_from(("raise", "noop")))
    def delete_badly(self, place: int, tier: int, kind: FaultKind) -> None:
        key = KEYS[place]
        self.flush()
        self._tier(tier).inject(Fault("delete", kind, wire_name_of(key)))
        result = self._run(self._store.delete, key)
        self._calm(tier)
        self._may[key].add(None)
        if kind == "raise":
            assert result.status is DeleteStatus.UNKNOWN, result
            self._may[key] = {None}

    @rule(item=st.tuples(_PLACES, sizes(_MAX_BYTES)), steps=st.integers(0, 6), put=st.booleans())
    def give_up(self, item: tuple[int, int], steps: int, *, put: bool) -> None:
        ((key, value),) = self._values([item])

        async def cancel() -> None:
            async with anyio.create_task_group() as tasks:
                if put:
                    tasks.start_soon(self._store.put, key, value)
                else:
                    tasks.start_soon(self._store.delete, key)
                for _ in range(steps):
                    await checkpoint()
                tasks.cancel_scope.cancel()
            await self._store.flush()

        self._run(cancel)
        self._may[key].add(value if put else None)

    @invariant()
    def leases_stay_as_they_were(self) -> None:
        for lease, value in self._leases:
            assert lease.view == value

    # -- how -------------------------------------------------------------------------------------

    def _run(self, call: Callable[..., Awaitable[ResultT]], *arguments: Any) -> ResultT:
        async def run() -> ResultT:
            with anyio.fail_after(PATIENCE_S):
                return await call(*arguments)

        return self._portal.call(run)

    def _values(self, items: list[tuple[int, int]]) -> list[tuple[str, bytes]]:
        values = []
        for place, size in items:
            self._written += 1
            values.append((KEYS[place], content(self._written, size)))
            stored_bytes = size + TRAILER_BYTES
            self._sizes[KEYS[place]] |= {stored_bytes, stored_bytes // 2}  # truncated ones are half
        return values

    async def _put_and_flush(self, key: str, value: bytes) -> PutResult:
        result = await self._store.put(key, value)
        await self._store.flush()
        return result

    def _tier(self, place: int) -> FaultyBackend:
        return self._tiers[place % len(self._tiers)]

    def _calm(self, tier: int) -> None:
        """End the faults of a tier, before its breaker opens."""
        self._tier(tier).calm()
        self._tier(tier).deadline_s = 5.0
        for each in inside(self._store).tiers:
            self._portal.call(each.health.succeeded, "calm")

    def _was_put_badly(
        self, key: str, value: bytes, result: PutResult, *, claimed: bool = False
    ) -> None:
        if result.tiers["l1"].status is PutStatus.REJECTED:  # nothing was done
            assert self._leases or self._late
        elif claimed:
            self._may[key] |= {value, None}
        else:
            self._may[key] = {value, None}

    def _was_put(self, key: str, value: bytes, result: PutResult) -> None:
        l1, *below = (outcome.status for outcome in result.tiers.values())
        if l1 is PutStatus.REJECTED:  # there was no memory, so nothing was done
            assert self._leases or self._late
            return
        superseded = any(outcome.reason == "superseded" for outcome in result.tiers.values())
        assert superseded or set(below) <= _GOOD, result
        self._may[key] = {value}
        self._damaged.discard(key)

    def _judge(self, result: GetResult, *, faulty: bool = False) -> None:
        key = str(result.key)
        may = self._may[key]
        if result.object is not None:
            assert bytes(result.object) in may, f"{key!r} has wrong bytes"
        elif result.status is GetStatus.MISS:
            assert None in may, f"{key!r} is lost"
        elif result.status is GetStatus.REJECTED:
            assert isinstance(result.error, OutOfMemoryError)
            assert self._leases or self._late
        else:
            assert faulty or key in self._damaged, result
