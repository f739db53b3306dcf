"""Leases: borrowed L1 memory, and batches of them."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self, overload

from tieredkv.errors import LeaseReleasedError
from tieredkv.results import GetStatus

if TYPE_CHECKING:
    from tieredkv.errors import TieredKVError
    from tieredkv.keys import Key
    from tieredkv.pool.arena import Arena, Entry

__all__ = ["GetResult", "GetResults", "LeaseBook", "MemoryObject"]

_log: Final = logging.getLogger(__name__)


_WHOLE: Final = slice(None)


class LeaseBook:
    """The leases that are out, so that one held too long is told of, once.

    They lie in pages by when they were taken, so taking one needs no clock: what lies in a page
    closed `warn_s` ago is at least that old. A page holds ``id`` of each lease with its entry, not
    its name, because an entry that only a dying lease refers to must not be garbage itself: its
    exporter's weak reference would never call back. Whoever pops a lease from its page, in whatever
    thread or finalizer, is the one that has ended it.

    Attributes:
        page: Where leases are entered now.
    """

    __slots__ = ("_closed", "_next_look", "_told", "_warn_s", "page")

    def __init__(self, warn_s: float) -> None:
        self.page: dict[int, Entry] = {}
        self._closed: dict[int, Entry] = {}
        self._told: list[dict[int, Entry]] = []
        self._warn_s = warn_s
        self._next_look = 0.0

    def __len__(self) -> int:
        return len(self.page) + len(self._closed) + sum(map(len, self._told))

    def look(self) -> None:
        """Every `warn_s` seconds, warn of the old leases; cheap when called more often."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + self._warn_s
        late, self._closed, self.page = self._closed, self.page, {}
        self._told = [page for page in (*self._told, late) if page]
        for entry in tuple(late.values()):  # leases may end meanwhile
            _log.warning(
                "the lease of %r (%d bytes) has been held for more than %.0f s: "
                "release it, so that its memory can be used again",
                entry.name,
                entry.nbytes,
                self._warn_s,
            )


class MemoryObject:
    """A lease of one value's bytes in L1: no copy, and they do not change while it lasts.

    Use it as a context manager or call `release`. Views handed out stay valid even after that: the
    memory is used again only when the lease *and* every view of it are gone. So drop the views too.

    A lease that is forgotten is reclaimed by the garbage collector, with a `ResourceWarning`.
    Releasing and dropping are safe in any thread, and in finalizers.

    Attributes:
        key: The key as it was given.
        tier: Name of the tier that the value came from, ``"l1"`` for a hit in memory.
        nbytes: Size of the value.
    """

    __slots__ = ("_arena", "_entry", "_page", "key", "nbytes", "tier")

    def __init__(self, entry: Entry, arena: Arena, book: LeaseBook, key: Key, tier: str) -> None:
        """Take over one of the entry's users; called by the store."""
        self._entry: Entry | None = entry
        self._arena = arena
        self._page = page = book.page
        page[id(self)] = entry
        self.key: Key = key
        self.tier: str = tier
        self.nbytes: int = entry.nbytes

    @property
    def view(self) -> memoryview:
        """A new read-only view of the value: one dimension, format ``"B"``, C-contiguous.

        Raises:
            LeaseReleasedError: The lease has ended.
        """
        entry = self._entry
        if entry is None:
            raise self._released()
        view = entry.view
        return self._arena.view(entry) if view is None else view[_WHOLE]

    @property
    def address(self) -> int:
        """Address of the first byte, for foreign code. It stands only while the lease does.

        Raises:
            LeaseReleasedError: The lease has ended.
        """
        entry = self._entry
        if entry is None:
            raise self._released()
        return self._arena.address(entry)

    def __len__(self) -> int:
        return self.nbytes

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def release(self) -> None:
        """End the lease. Never fails because of a view that is still alive.

        Raises:
            LeaseReleasedError: It had ended already.
        """
        entry = self._page.pop(id(self), None)
        if entry is None:
            raise self._released()
        self._entry = None
        self._arena.dropped.append(entry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entry = self._page.pop(id(self), None)
        if entry is not None:  # not ended before, nor by another thread just now
            self._entry = None
            self._arena.dropped.append(entry)

    def __del__(self) -> None:
        # Any thread, perhaps inside the garbage collector: no lock, and nothing of the pool's.
        if self._entry is not None and (entry := self._page.pop(id(self), None)) is not None:
            self._arena.dropped.append(entry)
            warnings.warn(
                f"the lease of {self.key!r} ({self.nbytes} bytes) was never released",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease cannot be copied or pickled: take bytes(lease)")

    def __repr__(self) -> str:
        state = f"{self.nbytes} bytes from {self.tier}" if self._entry is not None else "released"
        return f"<MemoryObject {self.key!r}: {state}>"

    def _released(self) -> LeaseReleasedError:
        return LeaseReleasedError(f"the lease of {self.key!r} has been released")


class GetResult:
    """What a get of one key brought.

    Attributes:
        key: The key as it was given.
        status: HIT, or why there are no bytes.
        object: With HIT of a get, the lease; with HIT of a get into the caller's buffer, None.
        tier: With HIT, the tier that answered; with MISS, None or the one that `error` is about;
            else the tier that said so.
        error: The cause, where there is more to say than the status does.
    """

    __slots__ = ("error", "key", "object", "status", "tier")

    def __init__(
        self,
        key: Key,
        status: GetStatus,
        object: MemoryObject | None = None,  # noqa: A002 - the attribute's name
        tier: str | None = None,
        error: TieredKVError | None = None,
    ) -> None:
        self.key: Key = key
        self.status: GetStatus = status
        self.object: MemoryObject | None = object
        self.tier: str | None = tier
        self.error: TieredKVError | None = error

    def __repr__(self) -> str:
        detail = f" from {self.tier}" if self.tier else ""
        return f"<GetResult {self.key!r}: {self.status}{detail}>"


class GetResults(Sequence[GetResult]):
    """The results of a batch, in the order asked; leaving its ``with`` releases every lease."""

    __slots__ = ("_results",)

    def __init__(self, results: Iterable[GetResult]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> GetResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GetResult]: ...
    def __getitem__(self, index: int | slice) -> GetResult | Sequence[GetResult]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[GetResult]:
        return iter(self._results)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Release every lease that has not been released yet."""
        for result in self._results:
            lease = result.object
            if lease is not None:
                lease.__exit__(None, None, None)
