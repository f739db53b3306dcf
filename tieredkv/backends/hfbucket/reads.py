"""Reads: contents straight into place, and a second try with fresh knowledge."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from tieredkv.backends.base import ReadRequest
from tieredkv.backends.hfbucket.bucket import Bucket
from tieredkv.clients.hub_answers import FileInfo, Grant
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.clients.xet import XetClient, XetError
from tieredkv.errors import TieredKVError, without_frames
from tieredkv.results import GetStatus, ReadOutcome, StatOutcome, size_mismatch

__all__ = ["Reader"]

_HIT: Final = ReadOutcome(GetStatus.HIT)
_MISS: Final = ReadOutcome(GetStatus.MISS)

_SECOND_TRY_WITHIN_S: Final = 5.0
"""A failure that took longer was a silence; a second one would outlast the deadline."""


class Reader:
    """Reads from one bucket.

    A first round uses what is remembered. Where that fails, or names another size than was asked
    for, a second one asks the Hub anew: the file may have been replaced or removed meanwhile.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """See `Backend.read_many`."""
        outcomes: list[ReadOutcome | None] = [None] * len(requests)
        began = time.monotonic()
        await self._round(requests, outcomes, is_second=False)
        if None in outcomes:
            late = time.monotonic() > began + _SECOND_TRY_WITHIN_S
            await self._round(requests, outcomes, is_second=True, gives_up=late)
        if all(
            outcome is not None and outcome.status is not GetStatus.UNKNOWN for outcome in outcomes
        ):
            self._bucket.troubles.passed("read")
        return cast("list[ReadOutcome]", outcomes)  # the second round leaves none open

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`."""
        bucket = self._bucket
        paths = [bucket.handle.path_of(name) for name in names]
        found, _ = await bucket.find(paths, fresh=False)
        errors = {
            path: bucket.troubles.mapped("stat", answer)
            for path, answer in found.items()
            if isinstance(answer, HubError)
        }
        if not errors:
            bucket.troubles.passed("stat")
        outcomes = []
        for path in paths:
            answer = found[path]
            if isinstance(answer, HubError):
                outcomes.append(StatOutcome(GetStatus.UNKNOWN, 0, errors[path]))
            elif answer is None:
                outcomes.append(StatOutcome(GetStatus.MISS))
            else:
                bucket.ledger.touch(path)
                outcomes.append(StatOutcome(GetStatus.HIT, answer.size))
        return outcomes

    async def _round(
        self,
        requests: Sequence[ReadRequest],
        outcomes: list[ReadOutcome | None],
        *,
        is_second: bool,
        gives_up: bool = False,
    ) -> None:
        """Fill the outcomes that are None; the first round leaves those that a second may heal."""
        bucket = self._bucket
        places = [place for place, outcome in enumerate(outcomes) if outcome is None]
        paths = {place: bucket.handle.path_of(requests[place].name) for place in places}
        found, remembered = await bucket.find(paths.values(), fresh=is_second)
        landings: dict[int, FileInfo] = {}
        for place, path in paths.items():
            info, wanted = found[path], requests[place].nbytes
            if isinstance(info, HubError):
                error = bucket.troubles.mapped("read", info)
                outcomes[place] = ReadOutcome(GetStatus.UNKNOWN, error)
            elif info is None:
                outcomes[place] = _MISS
            elif info.size == wanted:
                landings[place] = info
            elif path not in remembered:
                outcomes[place] = size_mismatch(info.size, wanted)
        if landings and gives_up:
            error = bucket.troubles.transfer("read", "the contents did not come in time")
            outcomes_left = ReadOutcome(GetStatus.UNKNOWN, error)
            for place in landings:
                outcomes[place] = outcomes_left
        elif landings:
            await self._land(requests, outcomes, landings, is_last=is_second)

    async def _land(
        self,
        requests: Sequence[ReadRequest],
        outcomes: list[ReadOutcome | None],
        landings: dict[int, FileInfo],
        *,
        is_last: bool,
    ) -> None:
        bucket = self._bucket
        grant: Grant | None = None
        if any(info.size for info in landings.values()):
            try:
                grant = await bucket.grants.get("read")
            except HubError as raised:
                gone = raised.failure is HubFailure.NO_BUCKET
                shown = None if gone else bucket.troubles.mapped("read", raised)
                failed = ReadOutcome(GetStatus.UNKNOWN, shown) if shown else _MISS
                for place in landings:
                    outcomes[place] = failed
                return
        results: dict[int, ReadOutcome | BaseException] = {}
        jobs = [
            _job(partial(_land, grant, info, requests[place]), results, place)
            for place, info in landings.items()
        ]
        await bucket.downloads.run_all(jobs)
        del jobs
        for place in landings:
            result = results[place]
            path = bucket.handle.path_of(requests[place].name)
            if isinstance(result, ReadOutcome):
                bucket.ledger.touch(path)
                outcomes[place] = result
            elif not isinstance(result, XetError):
                outcomes[place] = ReadOutcome(GetStatus.UNKNOWN, self._defect(result))
            else:
                bucket.cache.forget(path)
                if grant is not None:  # it may have been refused: that shows in many ways
                    bucket.grants.discard("read", grant)
                if is_last:
                    error = bucket.troubles.transfer("read", str(result))
                    outcomes[place] = ReadOutcome(GetStatus.UNKNOWN, error)

    def _defect(self, error: BaseException) -> TieredKVError:
        if isinstance(error, TieredKVError):
            return error
        return self._bucket.troubles.defect("read", error)


def _job(
    land: Callable[[XetClient], ReadOutcome],
    results: dict[int, ReadOutcome | BaseException],
    place: int,
) -> Callable[[XetClient], None]:
    def run(xet: XetClient) -> None:
        try:
            results[place] = land(xet)
        except BaseException as error:  # noqa: BLE001 - a worker outlives any request
            results[place] = without_frames(error)  # its frames hold the request's memory

    return run


def _land(grant: Grant | None, info: FileInfo, request: ReadRequest, xet: XetClient) -> ReadOutcome:
    """Read one value into place; in a worker."""
    target = _Target(request)
    if grant is not None:
        xet.download(grant, info, target.write)
    status = request.check.result()
    return _HIT if status is GetStatus.HIT else ReadOutcome(status)


class _Target:
    """The buffers of a request, filled in order. It keeps them alive; so do its bound methods."""

    def __init__(self, request: ReadRequest) -> None:
        self._feed = request.check.feed
        self._buffers = [buffer for buffer in request.buffers if buffer.nbytes]
        # Refuses what is read-only or has gaps, before anything is asked of a server.
        self._arrays = [
            (ctypes.c_char * buffer.nbytes).from_buffer(buffer) for buffer in self._buffers
        ]
        self._is_fed = bool(request.buffers) and request.buffers[0].nbytes > 0
        self._current = 0
        self._offset = 0

    def write(self, piece: bytes) -> None:
        """Copy the next bytes into place, with the GIL released."""
        at = 0
        while at < len(piece):
            buffer = self._buffers[self._current]
            count = min(len(piece) - at, buffer.nbytes - self._offset)
            end = self._offset + count
            source = piece if count == len(piece) else piece[at : at + count]
            ctypes.memmove(
                ctypes.addressof(self._arrays[self._current]) + self._offset, source, count
            )
            if self._is_fed and self._current == 0:
                self._feed(buffer[self._offset : end])
            at += count
            self._offset = end
            if end == buffer.nbytes:
                self._current += 1
                self._offset = 0
