"""`TieredStore`: L1 in front of an ordered list of backends. The facade: checks, then delegates."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from tieredkv import backends, loading, results, tiers
from tieredkv.config import (
    L1_NAME,
    Integrity,
    L1Config,
    Size,
    WriteBack,
    WritePolicy,
    WriteThrough,
    boolean,
    choice,
    number,
    parse_size,
    seconds,
    whole,
)
from tieredkv.errors import (
    StoreClosedError,
    TieredKVError,
    TierUnavailableError,
    WrongLoopError,
)
from tieredkv.keys import ALL, Key, Tenant, wire_name_of
from tieredkv.observe import Listener, Listeners, Subscription
from tieredkv.pool.lease import GetResults, MemoryObject
from tieredkv.results import GetStatus, merge_deletes
from tieredkv.tiers import arguments
from tieredkv.tiers.pacing import BUDGET_BYTES, HIT_BYTES

if TYPE_CHECKING:
    from tieredkv.backends import Backend
    from tieredkv.observe import StoreStats
    from tieredkv.results import (
        DeleteResult,
        FlushReport,
        PrefetchResult,
        PutResult,
        StatResult,
        ValueInfo,
    )
    from tieredkv.tiers import Assembly, Lookup, NewValue
    from tieredkv.tiers.puts import PutOutcomes

__all__ = ["Slot", "TieredStore"]

OnPutFailure: TypeAlias = Literal["return", "raise"]
PrefetchPolicy: TypeAlias = Literal["prefix", "full"]

_PENDING_SHARE_OF_L1 = 4


class Slot:
    """Memory of L1 that the caller fills, from `TieredStore.reserve`.

    Attributes:
        view: Writable bytes of the value, format ``"B"``. What is in them at first is undefined.
            Writing through it after the block was left is undefined, too.
        result: The put's outcome; None until the block was left.
    """

    __slots__ = ("result", "view")

    def __init__(self, view: memoryview) -> None:
        self.view: memoryview = view
        self.result: PutResult | None = None


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
        l2: Sequence[backends.Backend] = (),
        *,
        integrity: Integrity = "checksum",
        write_policy: WritePolicy | None = None,
        fail_open: bool = True,
        on_put_failure: OnPutFailure = "return",
        max_pending: Size | None = None,
        fence_s: float = 600.0,
        negative_ttl_s: float = 0.0,
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
            max_pending: Most bytes of writes without an outcome; default a quarter of L1. With
                `WriteBack` its `max_dirty` says so.
            negative_ttl_s: For how many seconds a tier that was looked up in vain is not asked for
                the same key again. Puts of this store are seen at once, those of other processes
                only then; so the default is not to remember.
            fence_s: For how many seconds after a put or delete without an answer what it may have
                left in its tier is told from what is current. A write that lands later still may
                bring old bytes back.

        Raises:
            ConfigError: A setting is out of range, or two backends have one name.
            TypeError: `l2` is not a list of backends, or `write_policy` no policy.
        """
        if not isinstance(l1, L1Config):
            l1 = L1Config(capacity=parse_size(l1, field="l1"))
        self._config = l1
        self._backends = list(l2)
        for place, backend in enumerate(self._backends):
            arguments.require_backend(backend, [other.name for other in self._backends[:place]])
        choice(integrity, field="integrity", choices=get_args(Integrity))
        self._integrity: Integrity = integrity
        choice(on_put_failure, field="on_put_failure", choices=("return", "raise"))
        self._fail_open = boolean(fail_open, field="fail_open")
        self._raise_on_failure = on_put_failure == "raise"
        self._policy: WritePolicy = WriteThrough() if write_policy is None else write_policy
        if not isinstance(self._policy, WriteThrough | WriteBack):
            raise TypeError(
                "write_policy is a WriteThrough(...) or WriteBack(...), not "
                f"{type(self._policy).__name__}"
            )
        if isinstance(self._policy, WriteBack) and self._policy.max_dirty is not None:
            max_pending = whole(self._policy.max_dirty, field="max_dirty", low=0, high=l1.capacity)
        default_pending = self._config.capacity // _PENDING_SHARE_OF_L1
        self._max_pending = (
            default_pending if max_pending is None else parse_size(max_pending, field="max_pending")
        )
        self._negative_ttl_s = number(negative_ttl_s, field="negative_ttl_s", low=0)
        self._fence_s = seconds(fence_s, field="fence_s")
        self._listeners = Listeners()
        self._opened = False
        self._open: Assembly | None = None
        self._thread_id = 0  # that of the event loop

    @classmethod
    def from_config(cls, source: Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """Compose a store from a configuration: a mapping, or a file of JSON, TOML or YAML.

        ``{"l1": "4GiB", "l2": [{"type": "disk", "path": "/var/cache/kv"}, ...]}``: the names are
        those of the constructors' arguments. LMCache's adapter specifications and single-process
        files are taken as they are. ``${NAME}`` in a text is the environment variable's value.

        Raises:
            ConfigError: A setting is unknown, missing, out of range, or contradicts another one.
            MissingDependencyError: The file is YAML, and PyYAML is not installed.
        """
        configuration = loading.load(source, cls)
        configuration.log()
        return configuration.store

    # -- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open every backend.

        One that cannot be reached now is asked again in the background; until it answers the store
        works without it.

        Raises:
            TierError: A backend refuses, and waiting will not help (a wrong password, no right to
                write, …); those that were opened are closed again.
            MissingDependencyError: A package that a backend needs is missing or unfit.
        """
        if self._opened:
            raise StoreClosedError("a store is opened once: make a new one")
        self._opened = True
        parts = tiers.Assembly(
            self._config,
            self._backends,
            tiers.Framing(self._integrity),
            self._listeners,
            policy=self._policy,
            max_pending_bytes=self._max_pending,
            fence_s=self._fence_s,
            negative_ttl_s=self._negative_ttl_s,
        )
        await parts.open()
        self._open, self._thread_id = parts, get_ident()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def flush(self, timeout_s: float = 10.0) -> FlushReport:
        """Write what is dirty or pending; return what is not in its tier after `timeout_s`."""
        return await self._parts().flush(seconds(timeout_s, field="timeout_s"))

    async def aclose(self, timeout_s: float = 10.0) -> FlushReport:
        """Wait for pending writes, close the backends, drop L1; twice is fine.

        Leases that are out stay valid. Cancellation does not cut it short.

        Args:
            timeout_s: How long to wait for the writes, and again for the backends.

        Returns:
            What was not written, by tier; it is logged, too.
        """
        seconds(timeout_s, field="timeout_s")
        if self._open is None:
            return results.FlushReport({})
        parts = self._parts()
        self._open = None
        return await parts.aclose(timeout_s)

    # -- reading ---------------------------------------------------------------------------------

    async def get(self, key: Key, *, size: int | None = None) -> MemoryObject | None:
        """Return a lease of a value, or None: there are no bytes for you now.

        A hit in L1 does not give way to other tasks, but after each millisecond of hits.

        Args:
            key: The key.
            size: The value's size in bytes, if known; it saves a look-up.

        Raises:
            KeyFormatError: The key is out of form.
            TypeError: The key is neither an `ObjectKey` nor a `str`.
            ConfigError: `size` is not a whole number from 0 up.
            TierUnavailableError: With ``fail_open=False``, a tier that may have it did not answer.
        """
        parts = self._open
        if parts is None or self._thread_id != get_ident():
            parts = self._parts()  # raises
        name, pacer = wire_name_of(key), parts.pacer
        if size is None and pacer.spent < BUDGET_BYTES:  # the short way, without a result
            lease = parts.l1.lease(name, key)
            if lease is not None:
                pacer.spent += HIT_BYTES
                return lease
        arguments.require_size(size)
        with parts.telemetry.span("get", 1):
            (result,) = await parts.reads.get_many((key,), (name,), (size,))
        self._require_known(result.status, result.tier, result.error)
        return result.object

    def get_nowait(self, key: Key, *, size: int | None = None) -> MemoryObject | None:
        """Return a lease of a value that L1 holds, or None. Raises for wrong keys as `get` does."""
        l1 = self._parts().l1
        arguments.require_size(size)
        l1.settle()
        lease = l1.lease(wire_name_of(key), key)
        if lease is None:
            l1.misses += 1
        elif size not in (None, lease.nbytes):
            lease.release()
            return None
        return lease

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
            ConfigError: A size is not a whole number from 0 up.
            ValueError: `sizes` has another length than `keys`.
        """
        parts = self._parts()
        keys = list(keys)
        names = [wire_name_of(key) for key in keys]
        known = [None] * len(keys) if sizes is None else list(sizes)
        if len(known) != len(keys):
            raise ValueError(f"{len(known)} sizes for {len(keys)} keys")
        for size in known:
            arguments.require_size(size)
        with parts.telemetry.span("get_many", len(keys)):
            return GetResults(await parts.reads.get_many(keys, names, known))

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
        self._require_known(result.status, result.tier, result.error)
        return tiers.flat_target(out).nbytes if result.status is GetStatus.HIT else None

    async def get_into_many(self, items: Iterable[tuple[Key, object]]) -> GetResults:
        """Do as `get_into` for several keys; one result a key, none with a lease."""
        parts = self._parts()
        pairs = list(items)
        keys = [key for key, _ in pairs]
        names = [wire_name_of(key) for key in keys]
        outs = [tiers.flat_target(out) for _, out in pairs]
        with parts.telemetry.span("get_into_many", len(keys)):
            return GetResults(await parts.reads.get_into_many(keys, names, outs))

    # -- asking ----------------------------------------------------------------------------------

    async def stat(self, key: Key) -> ValueInfo | None:
        """Return a value's size and first tier, or None. Raises as `get` does."""
        (result,) = await self.stat_many([key])
        self._require_known(result.status, result.tier, result.error)
        return result.info

    async def stat_many(self, keys: Iterable[Key]) -> list[StatResult]:
        """Return what is known of each key, in order, without reading values."""
        parts = self._parts()
        keys = list(keys)
        names = [wire_name_of(key) for key in keys]
        with parts.telemetry.span("stat_many", len(keys)):
            return await parts.lookups.stat_many(keys, names)

    async def exists(self, key: Key) -> bool:
        """Return whether some tier holds a value. Raises as `get` does."""
        return (await self.exists_many([key]))[0]

    async def exists_many(self, keys: Iterable[Key]) -> list[bool]:
        """Return whether some tier holds a value, for each key. Raises as `get` does."""
        answers = await self.stat_many(keys)
        for result in answers:
            self._require_known(result.status, result.tier, result.error)
        return [result.status is GetStatus.HIT for result in answers]

    async def match_prefix(self, keys: Iterable[Key]) -> int:
        """Return how many of the leading keys some tier holds. Raises as `get` does."""
        found = await self.exists_many(keys)
        return found.index(False) if False in found else len(found)

    @asynccontextmanager
    async def lookup(
        self, keys: Iterable[Key], *, owner: str = "", ttl_s: float = 300.0
    ) -> AsyncIterator[Lookup]:
        """Find keys and pin what is found until the block is left; yields a `Lookup`.

        A pinned key is deleted in no tier (`delete` answers PINNED, `clear` passes it over), and L1
        does not evict it: so what was found can be loaded. L1 keeps at most half of its memory so;
        a tier below may still evict by its own capacity, and a put replaces a pinned value, too.

        Args:
            keys: The keys; one may occur several times.
            owner: Who asks, for `status` and the log.
            ttl_s: Seconds after which the pins lapse, with a warning, if the block is not left.

        Raises:
            KeyFormatError: A key is out of form.
            ConfigError: `ttl_s` is not a positive number.
        """
        parts = self._parts()
        keys = list(keys)
        names = [wire_name_of(key) for key in keys]
        pin = parts.pins.take(owner, seconds(ttl_s, field="ttl_s"), names)
        try:
            with parts.telemetry.span("lookup", len(keys)):
                answers = await parts.lookups.stat_many(keys, names)
            found = [
                result if name in pin.names else results.StatResult(result.key, GetStatus.MISS)
                for name, result in zip(names, answers, strict=True)
            ]
            hits = {n for n, r in zip(names, found, strict=True) if r.status is GetStatus.HIT}
            parts.pins.release(pin, pin.names - hits)
            yield tiers.Lookup(found, names, lambda: self._parts().reads)
        finally:
            parts.pins.release(pin)

    async def prefetch(
        self, keys: Iterable[Key], *, policy: PrefetchPolicy = "prefix"
    ) -> PrefetchResult:
        """Load values into L1 ahead of need, up to half of its memory.

        A call that is cancelled leaves what is being loaded to land.

        Args:
            keys: The keys, in the order in which they matter.
            policy: ``"prefix"``: only the leading keys that some tier holds. ``"full"``: all that
                are found.

        Raises:
            KeyFormatError: A key is out of form.
            ConfigError: There is no such policy.
        """
        parts = self._parts()
        choice(policy, field="policy", choices=get_args(PrefetchPolicy))
        keys = list(keys)
        names = [wire_name_of(key) for key in keys]
        with parts.telemetry.span("prefetch", len(keys)):
            return await parts.prefetch.load(keys, names, prefix_only=policy == "prefix")

    async def keys(
        self, tier: str, *, prefix: str = "", tenant: Tenant = ALL
    ) -> AsyncGenerator[Key, None]:
        """Iterate over the keys of one tier, in no order.

        Who leaves the iteration early closes it: ``async with contextlib.aclosing(...)``.

        Args:
            tier: ``"l1"``, or the name of a backend that can list.
            prefix: What the wire names begin with.
            tenant: Keys of this tenant only; ``""`` for keys without one.

        Raises:
            ConfigError: There is no such tier, or it cannot list.
            TierError: The listing broke off.
        """
        parts = self._parts()
        arguments.require_listable(parts.tiers, tier)
        async with aclosing(parts.lookups.keys(tier, prefix, tenant)) as keys:
            async for key in keys:
                yield key

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
        parts = self._parts()
        parts.pins.drop_lapsed()
        name, source = wire_name_of(key), tiers.flat_value(value)
        arguments.require_room(parts.l1, key, source.nbytes)
        expires_ms = 0 if ttl_s is None else arguments.expires_ms(ttl_s)
        if parts.telemetry.traces:
            with parts.telemetry.span("put", 1):
                outcomes = await parts.puts.put(name, source, expires_ms)
        else:
            outcomes = await parts.puts.put(name, source, expires_ms)
        return self._put_result(key, outcomes)

    async def put_many(
        self, items: Iterable[tuple[Key, object]], *, ttl_s: float | None = None
    ) -> list[PutResult]:
        """Do as `put` for several values; one result an item, in order."""
        parts = self._parts()
        parts.pins.drop_lapsed()
        expires_ms = 0 if ttl_s is None else arguments.expires_ms(ttl_s)
        pairs = list(items)
        values = [self._new_value(parts, key, value, expires_ms) for key, value in pairs]
        with parts.telemetry.span("put_many", len(values)):
            outcomes = await parts.puts.put_many(values)
        return [
            self._put_result(key, outcome)
            for (key, _), outcome in zip(pairs, outcomes, strict=True)
        ]

    @asynccontextmanager
    async def reserve(self, key: Key, size: int) -> AsyncIterator[Slot]:
        """Fill a value in place: yields a `Slot`, puts its bytes when the block is left.

        Nobody sees the value before; an exception in the block drops it.

        Args:
            key: The key.
            size: Bytes of the value.

        Raises:
            OutOfMemoryError: L1 has no room, also after a second of waiting.
            StoreClosedError: Not open, or closed before the block was left: the value is dropped.
            Exception: As `put`.
        """
        parts = self._parts()
        name = wire_name_of(key)
        arguments.require_room(parts.l1, key, whole(size, field="size", low=0))
        async with parts.puts.reserve(name, size) as reservation:
            slot = Slot(reservation.view)
            yield slot
            if self._open is not parts:
                raise StoreClosedError(f"the store was closed before {key!r} was filled")
        if reservation.outcomes is not None:
            slot.result = self._put_result(key, reservation.outcomes)

    async def delete(self, key: Key) -> DeleteResult:
        """Remove a value from every tier; readers keep their bytes."""
        return (await self.delete_many([key]))[0]

    async def delete_many(self, keys: Iterable[Key]) -> list[DeleteResult]:
        """Do as `delete` for several keys; one result a key, in order.

        A call that is cancelled leaves the deletes to run their course.
        """
        parts = self._parts()
        names = [(key, wire_name_of(key)) for key in keys]
        with parts.telemetry.span("delete_many", len(names)):
            outcomes = await parts.delete_many(list(dict.fromkeys(name for _, name in names)))
        return [
            results.DeleteResult(
                key,
                merge_deletes(outcome.status for outcome in outcomes[name].values()),
                outcomes[name],
            )
            for key, name in names
        ]

    async def clear(
        self,
        *,
        tiers: Iterable[str] = (L1_NAME,),
        tenant: Tenant = ALL,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Remove every value of some tiers; readers keep their bytes.

        A backend is listed first, and only names that some key has are removed.

        Args:
            tiers: ``"l1"``, and the names of backends that can list and have a space of their own.
            tenant: Only this tenant's values; ``""`` for those without one.
            dry_run: Only count.

        Returns:
            Tier → values removed, or with `dry_run` the values that would be.

        Raises:
            ConfigError: There is no such tier, it cannot list, or others may keep values of theirs
                in the same space: give the backend a prefix.
            TypeError: `tiers` is a `str`.
            TierError: The listing broke off; of that tier nothing was removed.
        """
        parts = self._parts()
        if isinstance(tiers, str):
            raise TypeError(f"tiers is a list of names: write tiers=[{tiers!r}]")
        boolean(dry_run, field="dry_run")
        tiers = list(tiers)
        for tier in tiers:
            arguments.require_clearable(parts.tiers, tier)
        return {tier: await parts.clear(tier, tenant, dry_run=dry_run) for tier in tiers}

    # -- changing the tiers ----------------------------------------------------------------------

    async def add_backend(self, backend: Backend, *, place: int | None = None) -> None:
        """Open a further L2 tier and use it from now on.

        As when the store opens, one that cannot be reached now is used as soon as it can be.

        Args:
            backend: The backend, not open; the store closes it.
            place: Where it stands among the L2 tiers, in the order in which they are asked; None:
                behind them.

        Raises:
            ConfigError: Its name is taken, or there is no such place.
            TierError: It refuses, and waiting will not help.
            MissingDependencyError: A package that it needs is missing or unfit.
        """
        parts = self._parts()
        arguments.require_backend(backend, [tier.name for tier in parts.tiers])
        if place is not None:
            whole(place, field="place", low=0, high=len(parts.tiers))
        await parts.add(backend, place)

    async def remove_backend(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Let an L2 tier finish its writes, then close it and use it no more.

        From now on it is neither read nor given new values (SKIPPED("draining")). A call that is
        cancelled or times out leaves it so: call again, or `resume_backend`.

        Raises:
            ConfigError: There is no such tier.
            TimeoutError: It has writes to do after `timeout_s`.
        """
        parts = self._parts()
        await parts.remove(
            arguments.named_tier(parts.tiers, name), seconds(timeout_s, field="timeout_s")
        )

    def resume_backend(self, name: str) -> None:
        """Use an L2 tier again whose removal has not ended.

        What was put meanwhile is not there, and older values of those keys are not read from it.

        Raises:
            ConfigError: There is no such tier.
        """
        parts = self._parts()
        arguments.named_tier(parts.tiers, name).is_draining = False

    # -- quotas ----------------------------------------------------------------------------------

    async def set_quota(
        self, tenant: Tenant, capacity: Size | None, *, tier: str = L1_NAME
    ) -> None:
        """Set how much of a tier one tenant may fill, from now on; see `set_quotas`.

        Args:
            tenant: A salt; ``""`` for keys without one; `ALL` for tenants without a quota of their
                own.
            capacity: Bytes (or a size string); 0 lets nothing in; None for no quota.
            tier: ``"l1"`` or the name of a backend.
        """
        parts = self._parts()
        arguments.require_tier(parts.tiers, tier)
        limit = arguments.limits_of({tenant: 0 if capacity is None else capacity})

        def change(limits: dict[Tenant, int]) -> dict[Tenant, int]:
            limits.pop(tenant, None)
            return limits if capacity is None else limits | limit

        await parts.change_quotas(tier, change)

    async def set_quotas(self, quotas: Mapping[Tenant, Size], *, tier: str = L1_NAME) -> None:
        """Set the quotas of all tenants of a tier in one step; those of before are gone.

        In L1 the memory of values counts. A tenant at its quota makes room from its own values,
        never from another's; where that is not enough a put is REJECTED("quota") there, and may
        still reach the L2 tiers. What exceeds a new quota leaves at once.

        In an L2 tier stored bytes count, in this process's view: what is there now, if the backend
        can list a space of its own, and what this process writes and deletes. A put beyond the
        quota is REJECTED("quota") there; nothing is removed.

        Args:
            quotas: As `quotas` returns them; sizes may be strings.
            tier: ``"l1"`` or the name of a backend.

        Raises:
            ConfigError: There is no such tier, or a capacity is not a size.
            TypeError: A tenant is neither a text nor `ALL`.
            TierError: The tier could not be listed; the quotas are as they were.
        """
        parts = self._parts()
        arguments.require_tier(parts.tiers, tier)
        limits = arguments.limits_of(quotas)
        await parts.change_quotas(tier, lambda _: limits)

    def quotas(self, *, tier: str = L1_NAME) -> dict[Tenant, int]:
        """Return a tier's quotas in bytes, by tenant; a detached copy.

        Raises:
            ConfigError: There is no such tier.
        """
        parts = self._parts()
        arguments.require_tier(parts.tiers, tier)
        return parts.quotas(tier)

    # -- watching --------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Return what works and what does not, ready for JSON; for monitoring.

        Returns:
            ``"is_healthy"``; ``"l1"``: the figures of `L1Stats`, of tenants their number;
            ``"tiers"``: for each its ``"is_healthy"``, ``"reason"`` in words (by its last call and
            by what the backend says), ``"details"`` and what is pending; ``"pins"``: owner, keys,
            bytes kept in L1 and age of each look-up that holds some. A tier that does not say is
            reported after its deadline.
        """
        return await self._parts().status()

    def stats(self) -> StoreStats:
        """Return the store's figures at this moment."""
        return self._parts().stats()

    def subscribe(self, listener: Listener) -> Subscription:
        """Call `listener` with the events of L1 until the subscription is cancelled."""
        return self._listeners.subscribe(listener)

    # -- checking --------------------------------------------------------------------------------

    def _parts(self) -> Assembly:
        if self._open is None:
            raise StoreClosedError("the store is not open: use it inside `async with`")
        if self._thread_id != get_ident():
            raise WrongLoopError("the store belongs to the event loop on which it was opened")
        return self._open

    def _require_known(
        self, status: GetStatus, tier: str | None, error: TieredKVError | None
    ) -> None:
        if status is GetStatus.UNKNOWN and not self._fail_open:
            if isinstance(error, TierUnavailableError):
                raise error
            raise TierUnavailableError(tier or "l2", "read", str(error))

    def _new_value(self, parts: Assembly, key: Key, value: object, expires_ms: int) -> NewValue:
        name, source = wire_name_of(key), tiers.flat_value(value)
        arguments.require_room(parts.l1, key, source.nbytes)
        return tiers.NewValue(name, source, expires_ms)

    def _put_result(self, key: Key, outcomes: PutOutcomes) -> PutResult:
        result = results.PutResult(key, *outcomes)
        if self._raise_on_failure:
            result.raise_for_status()
        return result
