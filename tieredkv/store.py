"""`TieredStore`: L1 in front of an ordered list of backends. Composition only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import anyio
import attrs

from tieredkv.backends.base import Backend
from tieredkv.config import L1Config, Size, WriteThrough, boolean, choice, parse_size, seconds
from tieredkv.errors import (
    ConfigError,
    StoreClosedError,
    TierUnavailableError,
    ValueFormatError,
    WrongLoopError,
)
from tieredkv.frames import now_ms
from tieredkv.keys import Key, wire_name_of
from tieredkv.observe import Counts, Listener, Listeners, Subscription
from tieredkv.pool.lease import GetResult, GetResults, MemoryObject
from tieredkv.results import (
    DeleteOutcome,
    DeleteResult,
    DeleteStatus,
    FlushReport,
    GetStatus,
    PutResult,
    merge_deletes,
)
from tieredkv.tasks import Detached
from tieredkv.tiers.buffers import flat_target, flat_value
from tieredkv.tiers.chain import Chain
from tieredkv.tiers.framing import Framing, Integrity
from tieredkv.tiers.inflight import InFlight, Load
from tieredkv.tiers.memory import MemoryTier
from tieredkv.tiers.pacing import Pacer
from tieredkv.tiers.puts import NewValue, Puts
from tieredkv.tiers.reads import Reads
from tieredkv.tiers.tier import Tier
from tieredkv.tiers.writes import Writes

__all__ = ["L1Stats", "StoreStats", "TieredStore"]

_log: Final = logging.getLogger(__name__)

OnPutFailure: TypeAlias = Literal["return", "raise"]

_PENDING_SHARE_OF_L1: Final = 4
_L1: Final = MemoryTier.name


@attrs.frozen(kw_only=True)
class L1Stats:
    """Figures of L1 at one moment; bytes are those of memory blocks, but for `hit_bytes`."""

    objects: int
    used_bytes: int
    capacity_bytes: int
    overflow_used_bytes: int
    hits: int
    misses: int
    hit_bytes: int
    evicted: int
    leases: int


@attrs.frozen(kw_only=True)
class StoreStats:
    """Figures of a store at one moment, detached from it.

    Attributes:
        l1: The first tier.
        tiers: L2 tier → its counters since the store was opened.
        blocks_held_by_views: Blocks that nothing but a reader's view keeps from being used again.
        pending_bytes: Bytes of writes without an outcome yet, over all tiers.
        loads_in_flight: Keys that are being loaded.
    """

    l1: L1Stats
    tiers: Mapping[str, Counts]
    blocks_held_by_views: int
    pending_bytes: int
    loads_in_flight: int


class TieredStore:
    """Keeps large, recomputable values in tiers: L1 memory, then an ordered list of backends.

    Use it as an async context manager, on asyncio, uvloop or trio. It belongs to the event loop on
    which it was opened; only leases may go to other threads.

    No call raises for what a tier does: each key has an outcome. Wrong arguments always raise, and
    then nothing was done.
    """

    def __init__(
        self,
        l1: Size | L1Config,
        l2: Sequence[Backend] = (),
        *,
        integrity: Integrity = "checksum",
        write_policy: WriteThrough | None = None,
        fail_open: bool = True,
        on_put_failure: OnPutFailure = "return",
        max_pending: Size | None = None,
    ) -> None:
        """Compose a store; nothing is allocated or opened yet.

        Args:
            l1: Capacity of L1 (bytes or a size string), or its whole configuration.
            l2: The backends, in the order in which they are asked.
            integrity: ``"checksum"``: values are framed and verified on every load. ``"size"``:
                values are stored bare and only their size is checked.
            write_policy: When a put is acknowledged; default ``WriteThrough()``.
            fail_open: Whether `get`, `get_bytes`, `get_into` and `exists` answer None or False for
                a key that a tier could not be asked about; otherwise they raise.
            on_put_failure: Whether a put that misses its requirement returns or raises.
            max_pending: Most bytes of writes without an outcome; default a quarter of L1.

        Raises:
            ConfigError: A setting is out of range, or two backends have one name.
            TypeError: `l2` is not a list of backends.
        """
        if not isinstance(l1, L1Config):
            l1 = L1Config(capacity=parse_size(l1, field="l1"))
        self._config = l1
        backends = list(l2)
        for backend in backends:
            if not isinstance(backend, Backend):
                raise TypeError(f"l2 holds a {type(backend).__name__}, which is not a Backend")
        names = [_L1, *(backend.name for backend in backends)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"l2: the name {twice.pop()!r} is taken; give the backend another")
        choice(integrity, field="integrity", choices=("checksum", "size"))
        choice(on_put_failure, field="on_put_failure", choices=("return", "raise"))
        self._fail_open = boolean(fail_open, field="fail_open")
        self._raise_on_failure = on_put_failure == "raise"
        self._policy = write_policy or WriteThrough()
        self._tiers = [Tier(backend) for backend in backends]
        self._framing = Framing(integrity)
        default_pending = self._config.capacity // _PENDING_SHARE_OF_L1
        self._max_pending = (
            default_pending if max_pending is None else parse_size(max_pending, field="max_pending")
        )
        self._listeners = Listeners()
        self._opened = False
        self._thread_id: int | None = None  # that of the event loop, while open

    # -- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open every backend.

        Raises:
            TierError: A backend cannot be opened; those that were are closed again.
        """
        if self._opened:
            raise StoreClosedError("a store is opened once: make a new one")
        self._opened = True
        opened: list[Backend] = []
        try:
            for tier in self._tiers:
                await tier.backend.open()
                opened.append(tier.backend)
        except BaseException:
            with anyio.CancelScope(shield=True):
                for backend in reversed(opened):
                    await backend.aclose()
            raise
        self._l1 = MemoryTier(self._config, self._listeners, room_bytes=self._framing.room_bytes)
        self._detached = Detached()
        self._pacer = Pacer()
        self._inflight = InFlight()
        chain = Chain(
            self._tiers,
            self._l1,
            self._framing,
            drop_corrupt=self._drop_corrupt,
            settle=self._settle,
        )
        self._reads = Reads(self._l1, chain, self._inflight, self._detached, self._pacer)
        self._writes = Writes(
            self._tiers,
            self._l1.arena,
            self._framing,
            self._detached,
            policy=self._policy,
            max_pending_bytes=self._max_pending,
        )
        self._puts = Puts(self._l1, self._writes, self._inflight, self._pacer)
        self._thread_id = threading.get_ident()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self, timeout_s: float = 10.0) -> FlushReport:
        """Wait for pending writes, close the backends, drop L1; twice is fine.

        Leases that are out stay valid.

        Args:
            timeout_s: How long to wait for the writes, and again for the backends.

        Returns:
            What was not written in time, by tier; it is logged, too.
        """
        seconds(timeout_s, field="timeout_s")
        if self._thread_id is None:
            return FlushReport({})
        self._check()
        self._thread_id = None
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(timeout_s):
                await self._writes.flush()
            report = self._writes.report()
            for tier, names in report.pending.items():
                _log.warning("closed with %d writes to %s unfinished: %s", len(names), tier, names)
            with anyio.move_on_after(timeout_s) as scope:
                await self._detached.gather([tier.backend.aclose for tier in self._tiers])
            if scope.cancelled_caught:
                _log.warning("closed while a backend was still closing")
            self._l1.clear()
        return report

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, key: Key, *, size: int | None = None) -> MemoryObject | None:
        """Return a lease of a value, or None: there are no bytes for you now.

        An L1 hit does not give way to other tasks, but after each millisecond of hits.

        Args:
            key: The key.
            size: The value's size in bytes, if known; it saves a look-up.

        Raises:
            KeyFormatError: The key is out of form.
            TypeError: The key is neither an `ObjectKey` nor a `str`.
            TierUnavailableError: With ``fail_open=False``, a tier that may have it did not answer.
        """
        self._check()
        name = wire_name_of(key)
        if self._pacer.due:
            await self._pacer.pause()
        result = self._reads.from_l1(key, name, size)
        if result is None:
            (result,) = await self._reads.get_many((key,), (name,), (size,))
        self._require_known(result)
        return result.object

    async def get_many(
        self, keys: Iterable[Key], *, sizes: Iterable[int | None] | None = None
    ) -> GetResults:
        """Return one result a key, in order; a context manager that releases every lease.

        Args:
            keys: The keys; one may occur several times.
            sizes: The values' sizes in bytes, where known: one a key, or None.

        Raises:
            KeyFormatError: A key is out of form.
            TypeError: A key is neither an `ObjectKey` nor a `str`.
            ValueError: `sizes` has another length than `keys`.
        """
        self._check()
        keys = list(keys)
        names = [wire_name_of(key) for key in keys]
        known = [None] * len(keys) if sizes is None else list(sizes)
        if len(known) != len(keys):
            raise ValueError(f"{len(known)} sizes for {len(keys)} keys")
        return GetResults(await self._reads.get_many(keys, names, known))

    async def get_bytes(self, key: Key) -> bytes | None:
        """Return a copy of a value, or None. Raises as `get` does."""
        lease = await self.get(key)
        if lease is None:
            return None
        with lease:
            return bytes(lease)

    async def get_into(self, key: Key, out: object) -> int | None:
        """Read a value into the caller's buffer and return its size, or None.

        The contents of `out` are undefined unless a size is returned. A call that is cancelled
        ends when no worker touches `out` any more.

        Args:
            key: The key.
            out: Writable C-contiguous buffer of exactly the value's size in bytes.

        Raises:
            ValueFormatError: `out` is read-only or not contiguous.
            Exception: As `get`.
        """
        (result,) = await self.get_into_many([(key, out)])
        self._require_known(result)
        return flat_target(out).nbytes if result.status is GetStatus.HIT else None

    async def get_into_many(self, items: Iterable[tuple[Key, object]]) -> GetResults:
        """Do as `get_into` for several keys; one result a key, none with a lease."""
        self._check()
        pairs = list(items)
        names = [wire_name_of(key) for key, _ in pairs]
        outs = [flat_target(out) for _, out in pairs]
        keys = [key for key, _ in pairs]
        return GetResults(await self._reads.get_into_many(keys, names, outs))

    async def exists(self, key: Key) -> bool:
        """Return whether some tier holds a value. Raises as `get` does."""
        return (await self.exists_many([key]))[0]

    async def exists_many(self, keys: Iterable[Key]) -> list[bool]:
        """Return whether some tier holds a value, for each key. Raises as `get` does."""
        self._check()
        names = [wire_name_of(key) for key in keys]
        loads = {name: Load(name, None) for name in names if self._l1.peek(name) is None}
        for tier in self._tiers:
            left = [load for load in loads.values() if load.status is not GetStatus.HIT]
            outcomes = await tier.stat_many([load.name for load in left])
            for load, outcome in zip(left, outcomes, strict=True):
                load.note(tier.name, outcome.status, outcome.error)
        for load in loads.values():
            self._require_known(GetResult(load.name, load.status, None, load.tier, load.error))
        return [name not in loads or loads[name].status is GetStatus.HIT for name in names]

    # -- writing ---------------------------------------------------------------------------------

    async def put(self, key: Key, value: object, *, ttl_s: float | None = None) -> PutResult:
        """Store a copy of a value in L1 and in the L2 tiers.

        Args:
            key: The key.
            value: Any C-contiguous buffer; it must not change before this returns.
            ttl_s: Seconds after which the value counts as absent, in every tier.

        Returns:
            One outcome a tier. I/O never raises, unless the store was made to (`PutFailedError`).

        Raises:
            KeyFormatError: The key is out of form.
            ValueFormatError: The value is not contiguous, or larger than L1 and its overflow.
            TypeError: The key is no key, or the value no buffer.
            ConfigError: `ttl_s` is not a positive number.
        """
        (result,) = await self.put_many([(key, value)], ttl_s=ttl_s)
        return result

    async def put_many(
        self, items: Iterable[tuple[Key, object]], *, ttl_s: float | None = None
    ) -> list[PutResult]:
        """Do as `put` for several values; one result an item, in order."""
        self._check()
        expires_ms = 0
        if ttl_s is not None:
            expires_ms = now_ms() + max(1, round(seconds(ttl_s, field="ttl_s") * 1000))
        pairs = list(items)
        values: list[NewValue] = []
        for key, value in pairs:
            name, source = wire_name_of(key), flat_value(value)
            if source.nbytes > self._l1.largest_bytes:
                raise ValueFormatError(
                    f"the value of {key!r} has {source.nbytes} bytes; L1 takes at most "
                    f"{self._l1.largest_bytes}: give l1 or its overflow more capacity"
                )
            values.append(NewValue(name, source, ttl_s, expires_ms))
        outcomes = await self._puts.put_many(values)
        results = [
            PutResult(key, ok, tiers) for (key, _), (ok, tiers) in zip(pairs, outcomes, strict=True)
        ]
        if self._raise_on_failure:
            for result in results:
                result.raise_for_status()
        return results

    async def delete(self, key: Key) -> DeleteResult:
        """Remove a value from every tier; readers keep their bytes."""
        return (await self.delete_many([key]))[0]

    async def delete_many(self, keys: Iterable[Key]) -> list[DeleteResult]:
        """Do as `delete` for several keys; one result a key, in order.

        A call that is cancelled leaves the deletes to run their course.
        """
        self._check()
        keys = list(keys)
        names = list(dict.fromkeys(wire_name_of(key) for key in keys))
        outcomes: dict[str, dict[str, DeleteOutcome]] = {}
        with self._inflight.changing(names):
            for name in names:
                gone = self._l1.discard(name)
                status = DeleteStatus.DELETED if gone else DeleteStatus.ABSENT
                outcomes[name] = {_L1: DeleteOutcome(status)}
            writers = self._writes.writers
            answers = await self._detached.gather(
                partial(writer.delete_many, names) for writer in writers
            )
            for writer, answer in zip(writers, answers, strict=True):
                for name, outcome in zip(names, answer, strict=True):
                    outcomes[name][writer.tier.name] = outcome
        results = []
        for key in keys:
            tiers = outcomes[wire_name_of(key)]
            merged = merge_deletes(outcome.status for outcome in tiers.values())
            results.append(DeleteResult(key, merged, tiers))
        return results

    # -- watching --------------------------------------------------------------------------------

    def stats(self) -> StoreStats:
        """Return the store's figures at this moment."""
        self._check()
        l1, arena = self._l1, self._l1.arena
        arena.drain()
        return StoreStats(
            l1=L1Stats(
                objects=len(l1),
                used_bytes=arena.used_bytes,
                capacity_bytes=arena.capacity_bytes,
                overflow_used_bytes=arena.overflow_used_bytes,
                hits=l1.hits,
                misses=l1.misses,
                hit_bytes=l1.hit_bytes,
                evicted=l1.evicted,
                leases=len(l1.leases),
            ),
            tiers={tier.name: tier.counts.copy() for tier in self._tiers},
            blocks_held_by_views=arena.held_blocks,
            pending_bytes=sum(writer.pending_bytes for writer in self._writes.writers),
            loads_in_flight=len(self._inflight),
        )

    def subscribe(self, listener: Listener) -> Subscription:
        """Call `listener` with the events of L1 until the subscription is cancelled."""
        return self._listeners.subscribe(listener)

    # -- inside ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._thread_id is None:
            raise StoreClosedError("the store is not open: use it inside `async with`")
        if self._thread_id != threading.get_ident():
            raise WrongLoopError("the store belongs to the event loop on which it was opened")

    def _require_known(self, result: GetResult) -> None:
        if result.status is GetStatus.UNKNOWN and not self._fail_open:
            error = result.error
            if isinstance(error, TierUnavailableError):
                raise error
            raise TierUnavailableError(result.tier or "l2", "read", str(error))

    def _settle(self, load: Load) -> None:
        self._inflight.end(load)
        load.settle(self._l1.arena)

    def _drop_corrupt(self, tier: Tier, name: str) -> None:
        """Delete a copy that failed its check, in order with the writes of its key."""
        _log.warning("%s: the copy of %r is corrupt and is dropped", tier.name, name)
        writer = next(writer for writer in self._writes.writers if writer.tier is tier)

        async def drop(names: Sequence[str]) -> None:
            await writer.delete_many(names)

        self._detached.spawn(drop, (name,))
