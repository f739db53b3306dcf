"""A backend over a blocking client: plan a batch into jobs, run each job in one worker.

A subclass says how to connect and how to handle one value in a worker thread; batching, hops,
cancellation, client ownership and error mapping are done here. Where a medium has commands for many
values at once, it overrides the ``_group`` methods.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import attrs

from tieredkv.backends._workers import ClientT, Priority, Workers
from tieredkv.backends.base import Backend, ReadRequest, StoredName, WriteRequest
from tieredkv.config import MiB, Promotion, WriteOn, whole
from tieredkv.errors import (
    ConfigError,
    StoreClosedError,
    TieredKVError,
    TierError,
    TierUnavailableError,
    WrongLoopError,
    without_frames,
)
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
)

__all__ = ["ThreadedBackend"]

_log: Final = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
OutcomeT = TypeVar("OutcomeT")

NAMES_PER_JOB: Final = 256


@attrs.frozen
class Operation(Generic[OutcomeT]):
    """An operation and what a request becomes when handling it raised."""

    name: str
    failed: Callable[[TieredKVError], OutcomeT]
    priority: Priority = Priority.READ


def _failed_write(error: TieredKVError) -> WriteOutcome:
    unknown = isinstance(error, TierUnavailableError)
    return WriteOutcome(PutStatus.UNKNOWN if unknown else PutStatus.FAILED, None, error)


def _failed_delete(error: TieredKVError) -> DeleteOutcome:
    unknown = isinstance(error, TierUnavailableError)
    return DeleteOutcome(DeleteStatus.UNKNOWN if unknown else DeleteStatus.FAILED, error)


READ: Final = Operation("read", lambda error: ReadOutcome(GetStatus.UNKNOWN, error))
PREFETCH: Final = attrs.evolve(READ, priority=Priority.PREFETCH)
WRITE: Final = Operation("write", _failed_write, Priority.WRITE)
STAT: Final = Operation("stat", lambda error: StatOutcome(GetStatus.UNKNOWN, 0, error))
DELETE: Final = Operation("delete", _failed_delete, Priority.WRITE)  # overtakes no write


class ThreadedBackend(Backend, Generic[ClientT]):
    """Template for backends over blocking clients.

    Attributes:
        job_bytes: Small values are grouped into jobs of about this many bytes; …
        alone_bytes: … a value of at least so many is a job of its own.
        write_job_bytes: The same for writes, where it differs from `job_bytes`.
        has_groups: Whether `_group_of` says which names may share a job; else all may.
    """

    job_bytes: int = 1 * MiB
    write_job_bytes: int | None = None
    alone_bytes: int = 1 * MiB
    has_groups: bool = False

    def __init__(
        self,
        name: str,
        *,
        num_workers: int,
        write_on: WriteOn = "put",
        promotion: Promotion = "always",
    ) -> None:
        """Set up without touching the event loop or the medium.

        Raises:
            ConfigError: `name` is empty, `num_workers` is not a whole number from 1 up, or there is
                no such choice of `write_on` or `promotion`.
        """
        whole(num_workers, field="num_workers", low=1)
        self._set_up(name, write_on, promotion)
        self._workers: Workers[ClientT] = Workers(
            f"backend {name!r}",
            num_workers=num_workers,
            connect=self._connect,
            disconnect=self._disconnect,
        )

    # -- what a subclass provides; all of it runs in worker threads ------------------------------

    @abstractmethod
    def _connect(self) -> ClientT:
        """Return a new client."""

    @abstractmethod
    def _disconnect(self, client: ClientT) -> None:
        """Close a client that no thread uses."""

    @abstractmethod
    def _probe(self, client: ClientT) -> None:
        """Raise unless the medium is there and fit for use; part of `open`."""

    @abstractmethod
    def _read(self, client: ClientT, request: ReadRequest) -> ReadOutcome:
        """Read one value; may raise anything."""

    @abstractmethod
    def _write(self, client: ClientT, request: WriteRequest) -> WriteOutcome:
        """Write one value; may raise anything."""

    @abstractmethod
    def _stat(self, client: ClientT, name: str) -> StatOutcome:
        """Look one name up; may raise anything."""

    @abstractmethod
    def _delete(self, client: ClientT, name: str) -> DeleteOutcome:
        """Delete one value; may raise anything."""

    @abstractmethod
    def _list(
        self, client: ClientT, prefix: str
    ) -> Generator[list[StoredName], ClientT | None, None]:
        """Yield the stored names in pages, each in a hop of its own.

        Each hop has its own client: that of the next page is what ``yield`` returns. Where all
        workers share one, it may be ignored.
        """

    def _map_error(self, operation: str, error: BaseException) -> TierError:
        """Return what the user sees of an exception; override to know the medium's own."""
        return TierError(self.name, operation, f"{type(error).__name__}: {error}")

    def _group_of(self, name: str) -> int:
        """Return which names may share a job, where `has_groups`; on the event loop."""
        return 0

    def _most_hops(
        self, operation: Operation[OutcomeT], plan: Sequence[Sequence[int]]
    ) -> int | None:
        """Return how many workers may share a batch of these jobs, None for all."""
        return None

    def _read_group(
        self, client: ClientT, requests: Sequence[ReadRequest]
    ) -> Sequence[ReadOutcome]:
        return [self._guard(READ, self._read, client, request) for request in requests]

    def _write_group(
        self, client: ClientT, requests: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        return [self._guard(WRITE, self._write, client, request) for request in requests]

    def _stat_group(self, client: ClientT, names: Sequence[str]) -> Sequence[StatOutcome]:
        return [self._guard(STAT, self._stat, client, name) for name in names]

    def _delete_group(self, client: ClientT, names: Sequence[str]) -> Sequence[DeleteOutcome]:
        return [self._guard(DELETE, self._delete, client, name) for name in names]

    # -- the contract ----------------------------------------------------------------------------

    async def open(self) -> None:
        """See `Backend.open`."""
        self._workers.open()
        try:
            await self._workers.run(self._probe)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, ConfigError):
                raise ConfigError(f"{self.name}: {error}") from None
            if isinstance(error, Exception) and not isinstance(error, TieredKVError):
                raise self._map_error("open", error) from None
            raise

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        await self._workers.aclose()

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """See `Backend.read_many`."""
        outcomes: list[ReadOutcome | None] = [None] * len(requests)
        plan = list(self._planned(requests, range(len(requests)), self.job_bytes))
        jobs = [self._job(self._read_group, requests, places, outcomes) for places in plan]
        urgent = any(request.urgent for request in requests)
        operation = READ if urgent else PREFETCH
        return await self._settle(operation, jobs, outcomes, self._most_hops(operation, plan))

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """See `Backend.write_many`."""
        outcomes: list[WriteOutcome | None] = [None] * len(requests)
        last = {request.name: place for place, request in enumerate(requests)}
        limit = self.capabilities.max_value_bytes
        for place, request in enumerate(requests):
            if last[request.name] != place:
                outcomes[place] = WriteOutcome(PutStatus.SKIPPED, "superseded")
            elif limit and request.nbytes > limit:
                outcomes[place] = WriteOutcome(PutStatus.REJECTED, "too_large")
        places_left = [place for place, outcome in enumerate(outcomes) if outcome is None]
        plan = list(self._planned(requests, places_left, self.write_job_bytes or self.job_bytes))
        jobs = [self._job(self._write_group, requests, places, outcomes) for places in plan]
        return await self._settle(WRITE, jobs, outcomes, self._most_hops(WRITE, plan))

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`."""
        return await self._by_name(STAT, self._stat_group, names)

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        return await self._by_name(DELETE, self._delete_group, names)

    async def list_names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        """See `Backend.list_names`."""
        pages: list[Generator[list[StoredName], ClientT | None, None]] = []

        def next_page(client: ClientT) -> list[StoredName] | None:
            try:
                if pages:
                    return pages[0].send(client)
                pages.append(self._list(client, prefix))
                return next(pages[0])
            except StopIteration:
                return None

        while True:
            try:
                page = await self._workers.run(next_page)
            except TieredKVError:
                raise
            except Exception as error:  # noqa: BLE001 - mapped
                raise self._mapped("list", error) from None
            if page is None:
                return
            for entry in page:
                yield entry

    # -- planning --------------------------------------------------------------------------------

    async def _by_name(
        self,
        operation: Operation[OutcomeT],
        handle_group: Callable[[ClientT, Sequence[str]], Sequence[OutcomeT]],
        names: Sequence[str],
    ) -> list[OutcomeT]:
        outcomes: list[OutcomeT | None] = [None] * len(names)
        jobs = [
            self._job(handle_group, names, places[at : at + NAMES_PER_JOB], outcomes)
            for places in self._grouped(range(len(names)), names.__getitem__)
            for at in range(0, len(places), NAMES_PER_JOB)
        ]
        return await self._settle(operation, jobs, outcomes)

    def _grouped(
        self, places: Sequence[int], name_at: Callable[[int], str]
    ) -> Iterable[Sequence[int]]:
        """Return places by what their names may share a job with, in order."""
        if not self.has_groups:
            return (places,) if places else ()
        groups: dict[int, list[int]] = {}
        for place in places:
            groups.setdefault(self._group_of(name_at(place)), []).append(place)
        return groups.values()

    def _planned(
        self,
        requests: Sequence[ReadRequest] | Sequence[WriteRequest],
        places: Sequence[int],
        job_bytes: int,
    ) -> Iterator[Sequence[int]]:
        """Yield places in jobs: what may share one, of about `job_bytes`, large values alone."""
        for group in self._grouped(places, lambda place: requests[place].name):
            sizes = [requests[place].nbytes for place in group]
            if sum(sizes) < min(job_bytes, self.alone_bytes):
                yield group
            else:
                yield from _grouped_by_bytes(group, sizes, job_bytes, self.alone_bytes)

    def _job(
        self,
        handle_group: Callable[[ClientT, Sequence[RequestT]], Sequence[OutcomeT]],
        requests: Sequence[RequestT],
        places: Sequence[int],
        outcomes: list[OutcomeT | None],
    ) -> Callable[[ClientT], None]:
        """Return the work on the requests at `places`; only it keeps them alive."""
        group = [requests[place] for place in places]

        def job(client: ClientT) -> None:
            for place, outcome in zip(places, handle_group(client, group), strict=True):
                outcomes[place] = outcome

        return job

    async def _settle(
        self,
        operation: Operation[OutcomeT],
        jobs: Iterable[Callable[[ClientT], None]],
        outcomes: list[OutcomeT | None],
        most_hops: int | None = None,
    ) -> list[OutcomeT]:
        """Run jobs, which fill `outcomes`, and fill what they leave."""
        error: TieredKVError
        try:
            await self._workers.run_all(jobs, operation.priority, most_hops=most_hops)
            error = TierUnavailableError(self.name, operation.name, "its worker ended early")
        except (StoreClosedError, WrongLoopError):
            raise
        except Exception as raised:  # noqa: BLE001 - mapped
            error = self._mapped(operation.name, raised)
        return [outcome or operation.failed(error) for outcome in outcomes]

    def _guard(
        self,
        operation: Operation[OutcomeT],
        handle: Callable[[ClientT, RequestT], OutcomeT],
        client: ClientT,
        request: RequestT,
    ) -> OutcomeT:
        """Handle one request; whatever it raises becomes its own outcome."""
        try:
            return handle(client, request)
        except BaseException as error:  # noqa: BLE001 - mapped; a worker outlives any request
            return operation.failed(self._mapped(operation.name, without_frames(error)))

    def _sealed(
        self, requests: Sequence[WriteRequest]
    ) -> tuple[dict[int, memoryview], list[WriteOutcome | None]]:
        """Complete the values of a group.

        Returns:
            The values by place, and the outcome of each whose sealing raised.
        """
        values: dict[int, memoryview] = {}
        outcomes: list[WriteOutcome | None] = [None] * len(requests)
        for place, request in enumerate(requests):
            try:
                values[place] = request.seal()
            except BaseException as error:  # noqa: BLE001 - of this value alone
                outcomes[place] = WRITE.failed(self._mapped("write", without_frames(error)))
        return values, outcomes

    def _mapped(self, operation: str, error: BaseException) -> TierError:
        error = error.with_traceback(None)  # its frames hold the memory of the request
        return error if isinstance(error, TierError) else self._map_error(operation, error)


def _grouped_by_bytes(
    places: Sequence[int], sizes: Sequence[int], job_bytes: int, alone_bytes: int
) -> Iterator[list[int]]:
    """Yield groups of places whose values have about `job_bytes` together, large ones alone."""
    group: list[int] = []
    group_bytes = 0
    for place, nbytes in zip(places, sizes, strict=True):
        if nbytes >= alone_bytes:
            yield [place]
            continue
        group.append(place)
        group_bytes += nbytes
        if group_bytes >= job_bytes:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group
