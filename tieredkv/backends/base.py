"""The contract between a store and what keeps its values: implement `Backend` to add a medium.

A backend is asynchronous and takes batches. It knows wire names and buffers, and nothing of keys,
L1, checksums or other tiers. One event loop owns it, from `open` to `aclose`.

**Buffers.** A request's buffers belong to the store. A backend may touch them from the moment it is
called until it has dropped its last reference to them, also if its caller was cancelled meanwhile:
the store does not use the memory again before. So hold a request for as long as a worker may read
or write its memory, and not longer.

**Cancellation.** Every call may be cancelled and then returns at once. A vendor call that cannot be
stopped goes on by itself, with its request; what it brings is dropped. A request that no worker has
begun is dropped and never carried out.

**Failures.** Batch calls never raise for what a medium does: each name has its own outcome, in the
order asked, and one name's failure never touches another's. Only misuse raises
(`StoreClosedError`, `WrongLoopError`).

`tieredkv.testing` has the conformance kit that a backend must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, get_args

import attrs

from tieredkv.config import Promotion, WriteOn, choice
from tieredkv.errors import ConfigError
from tieredkv.results import DeleteOutcome, GetStatus, ReadOutcome, StatOutcome, WriteOutcome

__all__ = [
    "Backend",
    "BackendStatus",
    "Capabilities",
    "ReadCheck",
    "ReadRequest",
    "StoredName",
    "WriteRequest",
]


class ReadCheck(Protocol):
    """Decides in the worker whether what has landed is the value that was asked for."""

    def feed(self, landed: memoryview, /) -> None:
        """Take the next bytes of the first buffer, in order, as soon as they have landed.

        Optional, and only for backends that can scatter (there the first buffer is the payload);
        one that feeds must feed that buffer completely.
        """

    def result(self) -> GetStatus:
        """Say what the value is worth, once, after all of it has landed."""
        ...


@attrs.define(eq=False)  # frozen ones take three times as long to make
class ReadRequest:
    """One value to read into place; not to be changed.

    Attributes:
        name: Wire name.
        buffers: Writable, C-contiguous bytes (format ``"B"``), filled in order; together they have
            exactly the size that the stored value is expected to have. A buffer may be empty.
        check: Called in the worker after all has landed.
        urgent: Whether somebody waits for it; if not, a backend may take others first. A batch is
            as urgent as the most urgent of its requests.
    """

    name: str
    buffers: tuple[memoryview, ...]
    check: ReadCheck
    urgent: bool = True

    @property
    def nbytes(self) -> int:
        """Size that the stored value is expected to have."""
        if len(self.buffers) == 1:
            return self.buffers[0].nbytes
        return sum(buffer.nbytes for buffer in self.buffers)


@attrs.define(eq=False)
class WriteRequest:
    """One value to write; not to be changed.

    Attributes:
        name: Wire name.
        nbytes: Bytes to store.
        seal: Completes the value and returns its `nbytes` bytes, read-only for the backend; called
            in the worker, right before sending. May be called again for another try.
        ttl_s: Seconds after which a backend with `Capabilities.native_ttl` drops the value.
    """

    name: str
    nbytes: int
    seal: Callable[[], memoryview]
    ttl_s: float | None = None


@attrs.frozen
class StoredName:
    """One entry of a listing: a wire name and the bytes stored under it."""

    name: str
    stored_bytes: int


@attrs.frozen(kw_only=True)
class Capabilities:
    """What a backend can do; fixed for its life.

    Attributes:
        persistent: Values outlive the process.
        shared: Other processes may read and write the same values.
        listable: `Backend.list_names` works.
        scatter: A read may land in several buffers (payload, trailer); otherwise it has one.
        native_ttl: `WriteRequest.ttl_s` is honoured by the medium itself.
        max_value_bytes: Largest value, as stored; None for no limit.
    """

    persistent: bool
    shared: bool
    listable: bool
    scatter: bool
    native_ttl: bool
    max_value_bytes: int | None = None


@attrs.frozen(kw_only=True)
class BackendStatus:
    """What a backend says of itself.

    Attributes:
        is_healthy: Whether recent operations succeeded.
        reason: Why not, in words; empty when healthy.
        details: Further figures, by name. No secrets.
    """

    is_healthy: bool
    reason: str = ""
    details: Mapping[str, object] = attrs.field(factory=dict)


class Backend(ABC):
    """A medium that keeps values by wire name.

    Attributes:
        name: Unique within a store; how results and errors call the tier.
        capabilities: What it can do.
        deadline_s: How long a store waits for one batch before it goes on without the answer.
        has_own_space: Whether no one else keeps values under names that `list_names` gives, so that
            a store may remove all of them: a directory or a prefix of its own.
        write_on: When a store writes a value to it: ``"put"``, with the put; ``"evict"``, when L1
            evicts it; ``"second_hit"``, when L1 has answered for it twice; ``"never"``. Deletes
            reach it always.
        promotion: When a store lets what it answers with enter the tiers above: ``"always"``,
            ``"second_hit"``, at the second time, ``"never"``.
    """

    name: str
    capabilities: Capabilities
    deadline_s: float = 5.0
    has_own_space: bool = True
    write_on: WriteOn = "put"
    promotion: Promotion = "always"

    @abstractmethod
    async def open(self) -> None:
        """Connect and check that reads and writes can work; binds to the running event loop.

        Raises:
            TierUnavailableError: The medium cannot be reached now; another try may succeed.
            TierError: It refuses, and waiting will not help (rights, a wrong password, …).
            MissingDependencyError: A package is missing or unfit.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Refuse new calls, wait for the running ones and free everything; twice is fine.

        If cancelled, what still runs frees its own part when it ends.

        Raises:
            WrongLoopError: Opened on another event loop.
        """

    @abstractmethod
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """Read values into place; one outcome a request.

        HIT needs a value of exactly the expected size whose check said HIT; a check's other answer
        is the outcome. A name that is absent is a MISS, and its buffers stay as they were. Another
        size is REJECTED with `SizeMismatchError`; everything else that fails is UNKNOWN. Except
        with HIT and an absent name, the buffers may hold anything.

        Raises:
            StoreClosedError: Not open.
            WrongLoopError: Opened on another event loop.
        """

    @abstractmethod
    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """Write values, each replacing what its name held; one outcome a request.

        A reader sees the old value or the new one, never parts. Of two requests with one name in a
        batch the last is written and the others are SKIPPED("superseded"). FAILED: not stored.
        UNKNOWN: no answer in time, it may still be stored later. REJECTED("too_large"): over
        `Capabilities.max_value_bytes`.

        Raises:
            StoreClosedError: Not open.
            WrongLoopError: Opened on another event loop.
        """

    @abstractmethod
    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """Look up stored sizes: HIT, MISS or UNKNOWN a name, without reading the values.

        Raises:
            StoreClosedError: Not open.
            WrongLoopError: Opened on another event loop.
        """

    @abstractmethod
    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """Delete values: DELETED, ABSENT, FAILED or UNKNOWN a name.

        Raises:
            StoreClosedError: Not open.
            WrongLoopError: Opened on another event loop.
        """

    @abstractmethod
    def list_names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        """Iterate over the stored names that begin with `prefix`, in no order.

        What is written or deleted meanwhile may be listed or not.

        Raises:
            StoreClosedError: Not open.
            WrongLoopError: Opened on another event loop.
            TierError: The listing broke off.
        """

    @abstractmethod
    async def status(self) -> BackendStatus:
        """Return health and figures; never raises for what the medium does, never hangs on it."""

    def _set_up(self, name: str, write_on: WriteOn, promotion: Promotion) -> None:
        """Set the attributes of these names, checked.

        Raises:
            ConfigError: `name` is empty, or there is no such choice.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name={name!r} must be a text that is not empty")
        choice(write_on, field="write_on", choices=get_args(WriteOn))
        choice(promotion, field="promotion", choices=get_args(Promotion))
        self.name, self.write_on, self.promotion = name, write_on, promotion
