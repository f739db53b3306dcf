"""`BlockingTieredStore`: a `TieredStore` for programs without an event loop.

A thread of its own runs the event loop and the store in it; every call here hands the same call
over and waits. There is no second implementation.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, get_args

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tieredkv import loading
from tieredkv.backends.base import Backend
from tieredkv.config import Integrity, L1Config, Size, WritePolicy, choice
from tieredkv.errors import StoreClosedError
from tieredkv.keys import ALL, Key, Tenant
from tieredkv.observe import Listener, StoreStats, Subscription
from tieredkv.pool.lease import GetResults, MemoryObject
from tieredkv.results import (
    DeleteResult,
    FlushReport,
    PrefetchResult,
    PutResult,
    StatResult,
    ValueInfo,
)
from tieredkv.store import OnPutFailure, PrefetchPolicy, Slot, TieredStore
from tieredkv.tiers.held import Lookup

__all__ = ["BlockingLookup", "BlockingTieredStore", "EventLoop"]

EventLoop: TypeAlias = Literal["asyncio", "uvloop", "trio"]

_LOOPS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
_PAGE_KEYS: Final = 1000

ResultT = TypeVar("ResultT")


class _BlockLeftError(Exception):
    """Stands for whatever ended a caller's block."""


class BlockingLookup:
    """See `tieredkv.Lookup`; `load` blocks."""

    def __init__(self, lookup: Lookup, load: Callable[[], GetResults]) -> None:
        self._lookup = lookup
        self._load = load

    @property
    def results(self) -> tuple[StatResult, ...]:
        """See `Lookup.results`."""
        return self._lookup.results

    @property
    def hits(self) -> tuple[bool, ...]:
        """See `Lookup.hits`."""
        return self._lookup.hits

    @property
    def prefix_length(self) -> int:
        """See `Lookup.prefix_length`."""
        return self._lookup.prefix_length

    def load(self) -> GetResults:
        """See `Lookup.load`."""
        return self._load()


class BlockingTieredStore:
    """The calls of `TieredStore`, blocking; from any thread but that of its own event loop.

    Use it as a context manager. Arguments, results and errors are those of `TieredStore`. Leases
    may be used, and released, in any thread.

    A call that is interrupted (`KeyboardInterrupt`) is cancelled, and raises when it has ended: no
    worker touches the caller's memory after that. A store that is still open when the interpreter
    exits is closed then. In a forked child it is not open; make a new one there.
    """

    def __init__(
        self,
        l1: Size | L1Config,
        l2: Sequence[Backend] = (),
        *,
        integrity: Integrity = "checksum",
        write_policy: WritePolicy | None = None,
        fail_open: bool = True,
        on_put_failure: OnPutFailure = "return",
        max_pending: Size | None = None,
        fence_s: float = 600.0,
        negative_ttl_s: float = 0.0,
        event_loop: EventLoop = "asyncio",
    ) -> None:
        """Compose a store; see `TieredStore`.

        Args:
            l1: See `TieredStore`, as for the others.
            l2: …
            integrity: …
            write_policy: …
            fail_open: …
            on_put_failure: …
            max_pending: …
            fence_s: …
            negative_ttl_s: …
            event_loop: What runs the store; all but ``"asyncio"`` must be installed.
        """
        choice(event_loop, field="event_loop", choices=get_args(EventLoop))
        self._store = TieredStore(
            l1,
            l2,
            integrity=integrity,
            write_policy=write_policy,
            fail_open=fail_open,
            on_put_failure=on_put_failure,
            max_pending=max_pending,
            fence_s=fence_s,
            negative_ttl_s=negative_ttl_s,
        )
        self._loop = _LOOPS[event_loop]
        self._portal: BlockingPortal | None = None
        self._pid = 0  # of the process that has opened it
        self._resources = ExitStack()

    @classmethod
    def from_config(cls, source: Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """See `TieredStore.from_config`; `event_loop` may be configured, too."""
        configuration = loading.load(source, cls)
        configuration.log()
        return configuration.store

    # -- opening and closing ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        """See `TieredStore.__aenter__`."""
        if self._is_open:  # its event loop must not be lost
            raise StoreClosedError("a store is opened once: make a new one")
        kind, options = self._loop
        with ExitStack() as opening:
            self._portal = opening.enter_context(start_blocking_portal(kind, dict(options)))
            self._pid = os.getpid()
            opening.callback(self._end)
            self._run(self._store.__aenter__)
            atexit.register(self.close)
            opening.callback(atexit.unregister, self.close)
            self._resources = opening.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def flush(self, timeout_s: float = 10.0) -> FlushReport:
        """See `TieredStore.flush`."""
        return self._run(self._store.flush, timeout_s)

    def close(self, timeout_s: float = 10.0) -> FlushReport:
        """See `TieredStore.aclose`; ends the event loop, too."""
        if not self._is_open:
            if self._portal is not None:  # it is the parent's
                # Never finalized: that would wait for a thread which is not here.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._resources))
                self._end()
            return FlushReport({})
        with self._resources:
            return self._run(self._store.aclose, timeout_s)

    # -- reading ---------------------------------------------------------------------------------

    def get(self, key: Key, *, size: int | None = None) -> MemoryObject | None:
        """See `TieredStore.get`."""
        return self._run(partial(self._store.get, key, size=size))

    def get_nowait(self, key: Key, *, size: int | None = None) -> MemoryObject | None:
        """See `TieredStore.get_nowait`: L1 only. It does wait for its turn on the event loop."""
        return self._do(partial(self._store.get_nowait, key, size=size))

    def get_many(
        self, keys: Iterable[Key], *, sizes: Iterable[int | None] | None = None
    ) -> GetResults:
        """See `TieredStore.get_many`."""
        return self._run(partial(self._store.get_many, list(keys), sizes=sizes))

    def get_bytes(self, key: Key) -> bytes | None:
        """See `TieredStore.get_bytes`."""
        return self._run(self._store.get_bytes, key)

    def get_into(self, key: Key, out: object) -> int | None:
        """See `TieredStore.get_into`."""
        return self._run(self._store.get_into, key, out)

    def get_into_many(self, items: Iterable[tuple[Key, object]]) -> GetResults:
        """See `TieredStore.get_into_many`."""
        return self._run(self._store.get_into_many, list(items))

    # -- asking ----------------------------------------------------------------------------------

    def stat(self, key: Key) -> ValueInfo | None:
        """See `TieredStore.stat`."""
        return self._run(self._store.stat, key)

    def stat_many(self, keys: Iterable[Key]) -> list[StatResult]:
        """See `TieredStore.stat_many`."""
        return self._run(self._store.stat_many, list(keys))

    def exists(self, key: Key) -> bool:
        """See `TieredStore.exists`."""
        return self._run(self._store.exists, key)

    def exists_many(self, keys: Iterable[Key]) -> list[bool]:
        """See `TieredStore.exists_many`."""
        return self._run(self._store.exists_many, list(keys))

    def match_prefix(self, keys: Iterable[Key]) -> int:
        """See `TieredStore.match_prefix`."""
        return self._run(self._store.match_prefix, list(keys))

    @contextmanager
    def lookup(
        self, keys: Iterable[Key], *, owner: str = "", ttl_s: float = 300.0
    ) -> Iterator[BlockingLookup]:
        """See `TieredStore.lookup`."""
        with self._inside(self._store.lookup(list(keys), owner=owner, ttl_s=ttl_s)) as lookup:
            yield BlockingLookup(lookup, partial(self._run, lookup.load))

    def prefetch(self, keys: Iterable[Key], *, policy: PrefetchPolicy = "prefix") -> PrefetchResult:
        """See `TieredStore.prefetch`."""
        return self._run(partial(self._store.prefetch, list(keys), policy=policy))

    def keys(self, tier: str, *, prefix: str = "", tenant: Tenant = ALL) -> Iterator[Key]:
        """See `TieredStore.keys`."""
        listing = self._store.keys(tier, prefix=prefix, tenant=tenant)
        try:
            while page := self._run(_page, listing):
                yield from page
        finally:
            if isinstance(listing, AsyncGenerator) and self._is_open:
                self._run(listing.aclose)

    # -- writing ---------------------------------------------------------------------------------

    def put(self, key: Key, value: object, *, ttl_s: float | None = None) -> PutResult:
        """See `TieredStore.put`."""
        return self._run(partial(self._store.put, key, value, ttl_s=ttl_s))

    def put_many(
        self, items: Iterable[tuple[Key, object]], *, ttl_s: float | None = None
    ) -> list[PutResult]:
        """See `TieredStore.put_many`."""
        return self._run(partial(self._store.put_many, list(items), ttl_s=ttl_s))

    def reserve(self, key: Key, size: int) -> AbstractContextManager[Slot]:
        """See `TieredStore.reserve`."""
        return self._inside(self._store.reserve(key, size))

    def delete(self, key: Key) -> DeleteResult:
        """See `TieredStore.delete`."""
        return self._run(self._store.delete, key)

    def delete_many(self, keys: Iterable[Key]) -> list[DeleteResult]:
        """See `TieredStore.delete_many`."""
        return self._run(self._store.delete_many, list(keys))

    def clear(
        self, *, tiers: Iterable[str] = ("l1",), tenant: Tenant = ALL, dry_run: bool = False
    ) -> dict[str, int]:
        """See `TieredStore.clear`."""
        return self._run(partial(self._store.clear, tiers=tiers, tenant=tenant, dry_run=dry_run))

    # -- changing the tiers ----------------------------------------------------------------------

    def add_backend(self, backend: Backend, *, place: int | None = None) -> None:
        """See `TieredStore.add_backend`."""
        self._run(partial(self._store.add_backend, backend, place=place))

    def remove_backend(self, name: str, *, timeout_s: float = 30.0) -> None:
        """See `TieredStore.remove_backend`."""
        self._run(partial(self._store.remove_backend, name, timeout_s=timeout_s))

    def resume_backend(self, name: str) -> None:
        """See `TieredStore.resume_backend`."""
        self._do(partial(self._store.resume_backend, name))

    # -- quotas ----------------------------------------------------------------------------------

    def set_quota(self, tenant: Tenant, capacity: Size | None, *, tier: str = "l1") -> None:
        """See `TieredStore.set_quota`."""
        self._run(partial(self._store.set_quota, tenant, capacity, tier=tier))

    def set_quotas(self, quotas: Mapping[Tenant, Size], *, tier: str = "l1") -> None:
        """See `TieredStore.set_quotas`."""
        self._run(partial(self._store.set_quotas, quotas, tier=tier))

    def quotas(self, *, tier: str = "l1") -> dict[Tenant, int]:
        """See `TieredStore.quotas`."""
        return self._do(partial(self._store.quotas, tier=tier))

    # -- watching --------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """See `TieredStore.status`."""
        return self._run(self._store.status)

    def stats(self) -> StoreStats:
        """See `TieredStore.stats`."""
        return self._do(self._store.stats)

    def subscribe(self, listener: Listener) -> Subscription:
        """See `TieredStore.subscribe`; `listener` runs in the thread of the event loop.

        It must not call this store: that would wait for itself.
        """
        return self._store.subscribe(listener)

    # -- handing over ----------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        """Whether it is, in this process: a forked child has no thread that runs the loop."""
        return self._portal is not None and self._pid == os.getpid()

    def _open(self) -> BlockingPortal:
        if self._portal is None or not self._is_open:
            raise StoreClosedError("the store is not open: use it inside `with`")
        return self._portal

    def _end(self) -> None:
        self._portal = None

    @contextmanager
    def _inside(self, manager: AbstractAsyncContextManager[ResultT]) -> Iterator[ResultT]:
        entered = self._run(manager.__aenter__)
        try:
            yield entered
        except BaseException:
            # Not the exception itself: a KeyboardInterrupt would end the event loop.
            self._run(manager.__aexit__, _BlockLeftError, _BlockLeftError(), None)
            raise
        self._run(manager.__aexit__, None, None, None)

    def _do(self, call: Callable[[], ResultT]) -> ResultT:
        """Make a call that does not wait, on the event loop."""

        async def run() -> ResultT:
            return call()

        return self._run(run)

    def _run(self, call: Callable[..., Awaitable[ResultT]], *arguments: object) -> ResultT:
        """Make a call on the event loop; when this returns or raises it has ended."""
        ended = threading.Event()
        results: list[ResultT] = []
        scopes: list[CancelScope] = []  # of the call, once it has begun
        is_over = False

        async def run() -> None:
            if is_over:
                return
            with CancelScope() as scope:
                scopes.append(scope)
                try:
                    results.append(await call(*arguments))
                finally:
                    ended.set()

        async def cancel() -> None:
            for scope in scopes:
                scope.cancel()

        portal = self._open()
        try:
            portal.start_task_soon(run).result()
        except BaseException:
            # This thread may have been interrupted before it knew that the call had begun.
            is_over = True
            if not ended.is_set():
                portal.call(cancel)
                if scopes:
                    ended.wait()
            for result in results:  # it came as this thread was interrupted
                if isinstance(result, GetResults | MemoryObject):
                    result.__exit__(None, None, None)
            raise
        return results[0]


async def _page(keys: AsyncIterator[Key]) -> list[Key]:
    page: list[Key] = []
    async for key in keys:
        page.append(key)
        if len(page) == _PAGE_KEYS:
            break
    return page
