"""Writes and deletes: contents first, then one batch of names, then what has become of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import anyio

from tieredkv.backends.base import WriteRequest
from tieredkv.backends.hfbucket.bucket import Bucket
from tieredkv.clients.hub import MAX_OPERATIONS
from tieredkv.clients.hub_answers import FileInfo, Grant
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.clients.xet import XetClient, XetError
from tieredkv.config import MiB
from tieredkv.errors import TieredKVError, TierError, without_frames
from tieredkv.results import DeleteOutcome, DeleteStatus, PutStatus, WriteOutcome

__all__ = ["Writer"]

_STORED: Final = WriteOutcome(PutStatus.STORED)
_DELETED: Final = DeleteOutcome(DeleteStatus.DELETED)
_ABSENT: Final = DeleteOutcome(DeleteStatus.ABSENT)

_GROUP_BYTES: Final = 48 * MiB
"""Contents sent in one commit: its packs stay in memory until they are sent."""

_READ_ONLY_S: Final = 60.0
"""After a refusal for want of rights or space, writes are not tried for so long."""

_READ_ONLY: Final = frozenset({HubFailure.FORBIDDEN, HubFailure.QUOTA})


class Writer:
    """Writes to one bucket."""

    def __init__(self, bucket: Bucket, *, create_bucket: bool, is_private: bool) -> None:
        self._bucket = bucket
        self._creates = create_bucket
        self._is_private = is_private
        self._creating = anyio.Lock()
        self._creations = 0
        self._refused: TierError | None = None
        self._refused_until = 0.0

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome | None]:
        """Write values with names of their own; None is left where it was cancelled."""
        if self._refused is not None and time.monotonic() < self._refused_until:
            refused = WriteOutcome(PutStatus.REJECTED, "read_only", self._refused)
            return [refused] * len(requests)
        outcomes: list[WriteOutcome | None] = [None] * len(requests)
        files = await self._upload(requests, outcomes)
        paths = {place: self._bucket.handle.path_of(requests[place].name) for place in files}
        changes: dict[str, FileInfo | None] = {paths[place]: files[place] for place in files}
        errors = await self._change(changes)
        for place, path in paths.items():
            error = errors.get(path)
            outcomes[place] = _STORED if error is None else self._failed(error)
        if files and not errors:
            self._bucket.troubles.passed("write")
            self._refused = None
        return outcomes

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        bucket = self._bucket
        paths = [bucket.handle.path_of(name) for name in names]
        found = await bucket.lookups.ask(
            paths
        )  # the Hub calls everything deleted, also what is absent
        outcomes: dict[str, DeleteOutcome] = {}
        for path, answer in found.items():
            if isinstance(answer, HubError):
                shown = bucket.troubles.mapped("delete", answer)
                outcomes[path] = DeleteOutcome(DeleteStatus.FAILED, shown)
            elif answer is None:
                outcomes[path] = _ABSENT
        there = {path: None for path in found if path not in outcomes}
        errors = await self._change(there)
        for path in there:
            error = errors.get(path)
            if error is None:
                outcomes[path] = _DELETED
            elif error.failure is HubFailure.NO_BUCKET:
                outcomes[path] = _ABSENT
            else:
                status = DeleteStatus.UNKNOWN if error.is_ambiguous else DeleteStatus.FAILED
                outcomes[path] = DeleteOutcome(status, bucket.troubles.mapped("delete", error))
        if there and not errors:
            bucket.troubles.passed("delete")
        return [outcomes[path] for path in paths]

    async def evict(self, limit_bytes: int) -> None:
        """Delete the least recently used values of this process until at most so much is left."""
        paths = self._bucket.ledger.oldest(limit_bytes)
        for error in (await self._change(dict.fromkeys(paths))).values():
            self._bucket.troubles.mapped("evict", error)

    # -- contents --------------------------------------------------------------------------------

    async def _upload(
        self, requests: Sequence[WriteRequest], outcomes: list[WriteOutcome | None]
    ) -> dict[int, FileInfo]:
        """Send contents; fill the outcomes of those that failed, return the files of the others."""
        bucket = self._bucket
        files: dict[int, FileInfo] = {}
        left = list(range(len(requests)))
        for is_last in (False, True):
            if not left:
                break
            try:
                grant = await self._grant()
            except HubError as error:
                failed = self._failed(_before_the_change(error))
                for place in left:
                    outcomes[place] = failed
                break
            results: dict[int, FileInfo | BaseException] = {}
            sizes = {place: requests[place].nbytes for place in left}
            workers = bucket.uploads.num_workers
            jobs = [
                _job(grant, [requests[place] for place in places], places, results)
                for places in _grouped(sizes, workers)
            ]
            await bucket.uploads.run_all(jobs)
            del jobs
            left = []
            for place, result in results.items():
                if isinstance(result, FileInfo):
                    files[place] = result
                elif not isinstance(result, XetError):
                    outcomes[place] = WriteOutcome(PutStatus.FAILED, None, self._defect(result))
                elif is_last or not result.is_refusal:
                    shown = bucket.troubles.transfer("write", str(result))
                    outcomes[place] = WriteOutcome(PutStatus.FAILED, None, shown)
                else:
                    left.append(place)
            if left:
                bucket.grants.discard("write", grant)
        return files

    async def _grant(self) -> Grant:
        """Return access for writing; create the bucket if there is none and we are to.

        Raises:
            HubError: It cannot be done.
        """
        seen = self._creations
        try:
            return await self._bucket.grants.get("write")
        except HubError as error:
            if error.failure is not HubFailure.NO_BUCKET or not self._creates:
                raise
        async with self._creating:
            if self._creations == seen:
                await self._bucket.hub.create_bucket(is_private=self._is_private)
                self._creations += 1
        return await self._bucket.grants.get("write")

    # -- names -----------------------------------------------------------------------------------

    async def _change(self, changes: Mapping[str, FileInfo | None]) -> dict[str, HubError]:
        """Put files at paths (None: remove); return what failed, by path."""
        errors: dict[str, HubError] = {}
        paths = list(changes)
        for at in range(0, len(paths), MAX_OPERATIONS):
            chunk = {path: changes[path] for path in paths[at : at + MAX_OPERATIONS]}
            errors.update(await self._change_chunk(chunk))
        return errors

    async def _change_chunk(self, chunk: Mapping[str, FileInfo | None]) -> dict[str, HubError]:
        ledger = self._bucket.ledger
        errors: dict[str, HubError] = {}
        for path, info in chunk.items():
            ledger.attempt(path, info)
        try:
            failed = await self._bucket.hub.batch([_operation(*change) for change in chunk.items()])
            errors = {
                path: HubError(HubFailure.REFUSED, f"the Hub refused it: {failed[path]}")
                for path in chunk
                if path in failed
            }
        except HubError as raised:
            errors = dict.fromkeys(chunk, raised)
        for path, info in chunk.items():
            if path not in errors:
                ledger.confirm(path, info)
        if errors and any(
            error.is_ambiguous or error.failure is HubFailure.REFUSED for error in errors.values()
        ):
            await self._reconcile(chunk, errors)
        for path, error in errors.items():
            if not error.is_ambiguous:
                ledger.abandon(path)
        return errors

    async def _reconcile(
        self, chunk: Mapping[str, FileInfo | None], errors: dict[str, HubError]
    ) -> None:
        """Ask what is there; take out the errors of what is as it should be."""
        for path, answer in (await self._bucket.lookups.ask(list(errors))).items():
            if not isinstance(answer, HubError) and answer == chunk[path]:
                self._bucket.ledger.confirm(path, chunk[path])
                del errors[path]

    # -- failures --------------------------------------------------------------------------------

    def _failed(self, error: HubError) -> WriteOutcome:
        shown = self._bucket.troubles.mapped("write", error)
        if error.failure in _READ_ONLY:
            self._refused = shown
            self._refused_until = time.monotonic() + _READ_ONLY_S
            return WriteOutcome(PutStatus.REJECTED, "read_only", shown)
        status = PutStatus.UNKNOWN if error.is_ambiguous else PutStatus.FAILED
        return WriteOutcome(status, None, shown)

    def _defect(self, error: BaseException) -> TieredKVError:
        if isinstance(error, TieredKVError):
            return error
        return self._bucket.troubles.defect("write", error)


def _before_the_change(error: HubError) -> HubError:
    """Return the error of a request that precedes the change: no name was touched."""
    return HubError(error.failure, error.reason)


def _operation(path: str, info: FileInfo | None) -> dict[str, object]:
    if info is None:
        return {"type": "deleteFile", "path": path}
    now_ms = time.time_ns() // 1_000_000
    return {"type": "addFile", "path": path, "xetHash": info.hash, "mtime": now_ms}


def _job(
    grant: Grant,
    group: Sequence[WriteRequest],
    places: Sequence[int],
    results: dict[int, FileInfo | BaseException],
) -> Callable[[XetClient], None]:
    def run(xet: XetClient) -> None:
        try:
            found: Sequence[FileInfo | BaseException]
            found = xet.upload(grant, [partial(_sealed, request) for request in group])
        except BaseException as error:  # noqa: BLE001 - a worker outlives any request
            found = [without_frames(error)] * len(places)
        results.update(zip(places, found, strict=True))

    return run


def _sealed(request: WriteRequest) -> memoryview:
    view = request.seal()
    if view.nbytes != request.nbytes:
        raise ValueError(f"{view.nbytes} bytes were sealed, not {request.nbytes}")
    return view if view.ndim == 1 and view.itemsize == 1 else view.cast("B")


def _grouped(sizes: dict[int, int], workers: int) -> Iterator[list[int]]:
    """Yield places in groups of like bytes, one for each worker, or more where they are large."""
    total = sum(sizes.values())
    limit = max(MiB, min(_GROUP_BYTES, -(-total // workers)))
    group: list[int] = []
    nbytes = 0
    for place, size in sizes.items():
        if group and nbytes + size > limit:
            yield group
            group, nbytes = [], 0
        group.append(place)
        nbytes += size
    if group:
        yield group
