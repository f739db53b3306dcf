"""How values travel: groups of small ones, large ones alone, and what each reply means.

=========  =====================================  ==========================================
operation  a group                                when a group fails
=========  =====================================  ==========================================
read       MGET into place; Cluster: GETs         one by one, except when there is no answer
write      pipeline of SETs                       the same
stat       pipeline of STRLENs, EXISTS for zeros  the same
delete     pipeline of UNLINKs                    the same
=========  =====================================  ==========================================

Without an answer (time-out, lost connection) all of a group are UNKNOWN at once: one by one they
would each wait as long again. A key whose slot is moving is asked for again by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

from tieredkv.backends.base import ReadRequest, StoredName, WriteRequest
from tieredkv.backends.threaded import DELETE, READ, STAT, WRITE, Operation, ThreadedBackend
from tieredkv.backends.valkey.account import Account
from tieredkv.backends.valkey.remedies import PER_KEY, tier_error
from tieredkv.clients.glide import ClientError, ClientSettings, Kind, OwnedClient, Topology
from tieredkv.config import KiB, MiB
from tieredkv.errors import TierError
from tieredkv.frames import TRAILER_BYTES
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
    size_mismatch,
)

__all__ = ["Transfers"]

_KEYS_A_PAGE: Final = 1000
_LONGEST_TTL_S: Final = 10 * 365 * 86_400
_GLOB: Final = re.compile(rb"[\\*?\[\]]")
_IS_HIT: Final = GetStatus.HIT  # to look up a member costs more than to compare with it
_HIT: Final = ReadOutcome(GetStatus.HIT)
_MISS: Final = ReadOutcome(GetStatus.MISS)
_STORED: Final = WriteOutcome(PutStatus.STORED)
_NOWHERE: Final = StatOutcome(GetStatus.MISS)
_DELETED: Final = DeleteOutcome(DeleteStatus.DELETED)
_ABSENT: Final = DeleteOutcome(DeleteStatus.ABSENT)

# Asked again by itself, a key of a group may well succeed: its slot is moving.
_MOVING: Final = frozenset({Kind.MOVED, Kind.TRY_AGAIN, Kind.CLUSTER_DOWN, Kind.CROSS_SLOT})
_OUTAGES: Final = frozenset({Kind.TIMEOUT, Kind.CONNECTION})

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")
OutcomeT = TypeVar("OutcomeT")


class Transfers(ThreadedBackend[OwnedClient]):
    """The part of a `ValkeyBackend` that runs in worker threads.

    What it shares with the event loop is replaced as a whole, or guarded (`Account`).
    """

    # With the one value that comes on top a group's reply stays below 1 MiB: up to there the
    # vendor's decoder recycles its buffers (measured: benchmarks/valkey.py, 64 KiB).
    # Above 256 KiB a value is read no faster in a group than by itself.
    job_bytes = 704 * KiB
    write_job_bytes: int | None = 2 * MiB  # whose replies are short
    alone_bytes = 256 * KiB + TRAILER_BYTES + 1

    ttl_s: float | None
    capacity_bytes: int | None
    _settings: ClientSettings
    _key_head: str
    _topology: Topology
    _account: Account
    _troubles: dict[str, tuple[Kind, str]]

    def _most_hops(
        self, operation: Operation[OutcomeT], plan: Sequence[Sequence[int]]
    ) -> int | None:
        """See `ThreadedBackend`. A second worker for the second of two groups costs what it saves.

        The nodes of a Cluster, however, take in their groups side by side.
        """
        if operation is not WRITE or self.has_groups:
            return None
        groups = sum(len(places) > 1 for places in plan)
        return len(plan) - groups // 2

    def _read(self, client: OwnedClient, request: ReadRequest) -> ReadOutcome:
        if not request.nbytes:
            return self._landed(request, self._size(client, request.name))
        try:
            size = client.get_into(self._key(request.name), request.buffers[0])
        except ClientError as error:
            if error.kind is not Kind.TOO_SMALL:
                raise
            size = error.stored_bytes or self._size(client, request.name)
        return self._landed(request, size)

    def _size(self, client: OwnedClient, name: str) -> int | None:
        (size,) = client.sizes([self._key(name)])
        if isinstance(size, ClientError):
            raise size
        return size

    def _read_group(
        self, client: OwnedClient, requests: Sequence[ReadRequest]
    ) -> Sequence[ReadOutcome]:
        if len(requests) == 1:
            return super()._read_group(client, requests)

        def fetch() -> Sequence[int | ClientError | None]:
            keys = self._keys([request.name for request in requests])
            buffers = [request.buffers[0] for request in requests]
            if all(buffers):
                return client.get_many_into(keys, buffers)
            # No buffer may be empty: the vendor would take it for none.
            found: dict[int, int | ClientError | None] = {}
            full = [place for place, buffer in enumerate(buffers) if buffer]
            empty = [place for place, buffer in enumerate(buffers) if not buffer]
            if full:
                sizes = client.get_many_into(
                    [keys[place] for place in full], [buffers[place] for place in full]
                )
                found.update(zip(full, sizes, strict=True))
            found.update(zip(empty, client.sizes([keys[place] for place in empty]), strict=True))
            return [found[place] for place in range(len(requests))]

        bounded = self.capacity_bytes is not None

        def settle(size: int | ClientError | None, request: ReadRequest) -> ReadOutcome:
            if size == request.buffers[0].nbytes and not (bounded or self._troubles):
                status = request.check.result()
                return _HIT if status is _IS_HIT else ReadOutcome(status)
            if isinstance(size, ClientError):
                return self._again(size, self._read, client, request)
            return self._landed(request, size)

        return self._settled(READ, client, requests, fetch, settle) or super()._read_group(
            client, requests
        )

    def _landed(self, request: ReadRequest, size: int | None) -> ReadOutcome:
        """Judge a read by the size of what is stored."""
        self._succeeded("read")
        if size is None:
            self._account.gone(request.name)
            return _MISS
        if size != request.buffers[0].nbytes:
            return size_mismatch(size, request.nbytes)
        if self.capacity_bytes is not None:
            self._account.used(request.name)
        status = request.check.result()
        return _HIT if status is GetStatus.HIT else ReadOutcome(status)

    def _write(self, client: OwnedClient, request: WriteRequest) -> WriteOutcome:
        value = request.seal()
        self._make_room(client, request.nbytes)
        try:
            client.set(self._key(request.name), value, self._ttl_ms(request))
        except BaseException as error:
            self._not_written(error, request)
            raise
        return self._written(request)

    def _write_group(
        self, client: OwnedClient, requests: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        if not self._fit(requests):
            return super()._write_group(client, requests)
        # A large value, which is alone, too: from 1 MiB up a pipeline is faster than SET.
        values, sealed = self._sealed(requests)
        sent = [requests[place] for place in values]

        def send() -> Sequence[ClientError | None]:
            items = [
                (self._key(requests[place].name), value, self._ttl_ms(requests[place]))
                for place, value in values.items()
            ]
            self._make_room(client, sum(request.nbytes for request in sent))
            try:
                return client.set_many(items)
            except BaseException as error:
                for request in sent:
                    self._not_written(error, request)
                raise

        def settle(failure: ClientError | None, request: WriteRequest) -> WriteOutcome:
            if failure is None:
                return self._written(request)
            self._not_written(failure, request)
            return self._again(failure, self._write, client, request)

        written = self._settled(WRITE, client, sent, send, settle) if sent else ()
        if written is None:
            written = super()._write_group(client, sent)
        answers = iter(written)
        return [outcome or next(answers) for outcome in sealed]

    def _written(self, request: WriteRequest) -> WriteOutcome:
        self._succeeded("write")
        if self.capacity_bytes is not None:
            self._account.stored(request.name, request.nbytes)
        return _STORED

    def _not_written(self, error: BaseException, request: WriteRequest) -> None:
        if self.capacity_bytes is None:
            return
        if isinstance(error, ClientError) and error.kind in _OUTAGES:  # it may be nevertheless
            self._account.stored(request.name, request.nbytes)
        else:
            self._account.cancel(request.nbytes)

    def _fit(self, requests: Sequence[WriteRequest]) -> bool:
        """Say whether values can be in the server at a time."""
        capacity = self.capacity_bytes
        return capacity is None or sum(request.nbytes for request in requests) <= capacity

    def _stat(self, client: OwnedClient, name: str) -> StatOutcome:
        return self._sized(name, self._size(client, name))

    def _stat_group(self, client: OwnedClient, names: Sequence[str]) -> Sequence[StatOutcome]:
        def settle(size: int | ClientError | None, name: str) -> StatOutcome:
            if isinstance(size, ClientError):
                return self._again(size, self._stat, client, name)
            return self._sized(name, size)

        return self._settled(
            STAT, client, names, lambda: client.sizes(self._keys(names)), settle
        ) or super()._stat_group(client, names)

    def _sized(self, name: str, size: int | None) -> StatOutcome:
        self._succeeded("stat")
        if size is None:
            self._account.gone(name)
            return _NOWHERE
        return StatOutcome(GetStatus.HIT, size)

    def _delete(self, client: OwnedClient, name: str) -> DeleteOutcome:
        (was_there,) = client.delete([self._key(name)])
        return self._deleted(name, was_there)

    def _delete_group(self, client: OwnedClient, names: Sequence[str]) -> Sequence[DeleteOutcome]:
        def settle(was_there: bool | ClientError, name: str) -> DeleteOutcome:  # noqa: FBT001
            if isinstance(was_there, ClientError):
                return self._again(was_there, self._delete, client, name)
            return self._deleted(name, was_there)

        return self._settled(
            DELETE, client, names, lambda: client.delete(self._keys(names)), settle
        ) or super()._delete_group(client, names)

    def _deleted(self, name: str, was_there: bool | ClientError) -> DeleteOutcome:  # noqa: FBT001
        if isinstance(was_there, ClientError):
            raise was_there
        self._succeeded("delete")
        self._account.gone(name)
        return _DELETED if was_there else _ABSENT

    def _list(
        self, client: OwnedClient, prefix: str
    ) -> Generator[list[StoredName], OwnedClient | None, None]:
        head = self._key_head.encode()
        pattern = _GLOB.sub(rb"\\\g<0>", head + prefix.encode()) + b"*"
        cursor: object = None
        seen: set[str] = set()  # the server may name a key again while its table grows
        while True:
            cursor, keys = client.scan(cursor, pattern, _KEYS_A_PAGE)
            names: list[str] = []
            for key in keys:
                try:
                    name = key[len(head) :].decode()
                except UnicodeDecodeError:  # nothing of ours
                    continue
                if name not in seen:
                    seen.add(name)
                    names.append(name)
            sizes = client.sizes(self._keys(names)) if names else []
            self._succeeded("list")
            client = (
                yield [
                    StoredName(name, size)
                    for name, size in zip(names, sizes, strict=True)
                    if isinstance(size, int)
                ]
            ) or client
            if cursor is None:
                return

    # -- groups ----------------------------------------------------------------------------------

    def _settled(
        self,
        operation: Operation[OutcomeT],
        client: OwnedClient,
        requests: Sequence[RequestT],
        send: Callable[[], Sequence[ReplyT]],
        settle: Callable[[ReplyT, RequestT], OutcomeT],
    ) -> Sequence[OutcomeT] | None:
        """Send a group and settle each request by its reply; None: go one by one."""
        try:
            replies = send()
        except ClientError as error:
            if error.kind not in _OUTAGES:
                return None  # one of them may have spoilt it for all
            failed = operation.failed(self._mapped(operation.name, error))
            return [failed] * len(requests)
        outcomes: list[OutcomeT] = []
        for request, reply in zip(requests, replies, strict=True):
            try:
                outcomes.append(settle(reply, request))
            except BaseException as error:  # noqa: BLE001 - its own outcome
                outcomes.append(operation.failed(self._mapped(operation.name, error)))
        return outcomes

    def _again(
        self,
        failure: ClientError,
        handle: Callable[[OwnedClient, RequestT], OutcomeT],
        client: OwnedClient,
        request: RequestT,
    ) -> OutcomeT:
        """Handle a request by itself if that may help, else raise what its group had for it."""
        if failure.kind in _MOVING:
            return handle(client, request)
        raise failure

    def _make_room(self, client: OwnedClient, nbytes: int) -> None:
        """Reserve room for so many bytes, if we have to, and evict what has to go for them."""
        if self.capacity_bytes is None or not (leaving := self._account.reserve(nbytes)):
            return
        stay, failure = dict(leaving), None
        try:
            gone = client.delete([self._key(name) for name in stay])
            for (name, _), answer in zip(leaving, gone, strict=True):
                if isinstance(answer, ClientError):
                    failure = answer
                else:
                    del stay[name]
        finally:
            for name, size in reversed(stay.items()):
                self._account.stayed(name, size)
            if stay:
                self._account.cancel(nbytes)
        if failure is not None:
            raise failure

    # -- names, times, errors --------------------------------------------------------------------

    def _key(self, name: str) -> bytes:
        return (self._key_head + name).encode()

    def _keys(self, names: Sequence[str]) -> list[bytes]:
        head = self._key_head
        return [(head + name).encode() for name in names]

    def _group_of(self, name: str) -> int:
        return self._topology.shard_of(self._key(name))

    def _ttl_ms(self, request: WriteRequest) -> int | None:
        """Return how long the server keeps a value, rounded up."""
        ttl_s = request.ttl_s
        if ttl_s is None or (self.ttl_s is not None and self.ttl_s < ttl_s):
            ttl_s = self.ttl_s
        return None if ttl_s is None else max(1, math.ceil(min(ttl_s, _LONGEST_TTL_S) * 1000))

    def _succeeded(self, operation: str) -> None:
        if self._troubles:
            for other, (kind, _) in list(self._troubles.items()):
                if other == operation or kind in _OUTAGES:
                    self._troubles.pop(other, None)

    def _map_error(self, operation: str, error: BaseException) -> TierError:
        if not isinstance(error, ClientError):
            return super()._map_error(operation, error)
        mapped = tier_error(self.name, operation, error)
        if error.kind not in PER_KEY:
            self._troubles[operation] = error.kind, str(mapped)
        return mapped
