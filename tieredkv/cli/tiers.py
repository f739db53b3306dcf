"""One configured tier at a time, without L1 and without the others: what commands work on.

Values are handled as they are stored, frame and all, so that a copy keeps generation, expiry and
checksum. Nothing that turns out to be wrong is deleted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Final

import anyio
import attrs
import click

from tieredkv.backends import Backend, ReadRequest, StoredName, ValkeyBackend, WriteRequest
from tieredkv.clients.glide import keep_off_stdout
from tieredkv.config import MiB
from tieredkv.errors import ConfigError, KeyFormatError, SizeMismatchError, TieredKVError
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, Trailer, expires_in, now_ms, seal
from tieredkv.keys import key_of
from tieredkv.loading import Configuration, load
from tieredkv.results import GetStatus, PutStatus, ReadOutcome, WriteOutcome
from tieredkv.store import TieredStore

__all__ = [
    "Found",
    "OpenTier",
    "checked_name",
    "chosen",
    "complain",
    "configuration",
    "open_tier",
    "payload_of",
    "sealed",
]

_BATCH_BYTES: Final = 32 * MiB
_BATCH_VALUES: Final = 64


def configuration(file: Path | None) -> Configuration[TieredStore]:
    """Load a configuration for commands.

    Raises:
        click.UsageError: None was given.
        ConfigError: It does not work.
    """
    if file is None:
        raise click.UsageError("no configuration: give --config FILE or set TIEREDKV_CONFIG")
    try:
        return load(file, TieredStore)
    except ConfigError as error:
        told = str(error)
        raise ConfigError(told if told.startswith(f"{file}:") else f"{file}: {told}") from None


def chosen(found: Configuration[TieredStore], names: Sequence[str]) -> list[Backend]:
    """Return the tiers of these names, in the configuration's order; all of them if none is named.

    Raises:
        click.UsageError: There is none of that name, or none at all.
    """
    known = [backend.name for backend in found.backends]
    if not known:
        raise click.UsageError("the configuration has no tiers in l2")
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no tier {name!r}: {', '.join(known)}")
    return [backend for backend in found.backends if not names or backend.name in names]


def checked_name(name: str) -> str:
    """Return a wire name if some key has it.

    Raises:
        click.UsageError: None has.
    """
    try:
        key_of(name)
    except KeyFormatError as error:
        raise click.UsageError(f"{error}; a key is given as `ls` prints it") from None
    return name


@attrs.frozen
class Found:
    """What a tier holds under a name.

    Attributes:
        name: Wire name.
        status: HIT: it is whole. Else what a store would make of it.
        stored: With HIT, its bytes as stored, valid until the next read.
        reason: Why a MISS is one: ``"foreign"``, ``"expired"``; or the text of an error.
    """

    name: str
    status: GetStatus
    stored: memoryview = attrs.field(factory=lambda: memoryview(b""), repr=False)
    reason: str = ""


class OpenTier:
    """A tier that is open. Each call asks the medium itself."""

    def __init__(self, backend: Backend, *, is_framed: bool) -> None:
        self.backend: Backend = backend
        self.name: str = backend.name
        self.is_framed: bool = is_framed

    async def names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        """Yield what is listed and is some key's.

        Raises:
            click.UsageError: The tier cannot be listed.
            TierError: The listing broke off.
        """
        if not self.backend.capabilities.listable:
            raise click.UsageError(f"the tier {self.name} cannot be listed")
        async for stored in self.backend.list_names(prefix):
            try:
                key_of(stored.name)
            except KeyFormatError:
                continue
            yield stored

    async def batches(self, prefix: str = "") -> AsyncIterator[list[StoredName]]:
        """Yield what is listed in batches that can be read at once; a large value comes alone."""
        batch: list[StoredName] = []
        nbytes = 0
        async for stored in self.names(prefix):
            full = len(batch) == _BATCH_VALUES or nbytes + stored.stored_bytes > _BATCH_BYTES
            if batch and full:
                yield batch
                batch, nbytes = [], 0
            batch.append(stored)
            nbytes += stored.stored_bytes
        if batch:
            yield batch

    async def sizes(self, names: Sequence[str]) -> dict[str, tuple[GetStatus, int, str]]:
        """Return name → status, stored bytes and, if it is unknown, why."""
        outcomes = await self.backend.stat_many(names)
        return {
            name: (outcome.status, outcome.stored_bytes, str(outcome.error or ""))
            for name, outcome in zip(names, outcomes, strict=True)
        }

    async def read(self, wanted: Iterable[StoredName]) -> list[Found]:
        """Read and check values; what has changed in size since it was listed is read once more."""
        wanted = list(wanted)
        found = {item.name: item for item in await self._read(wanted)}
        again = [
            StoredName(item.name, int(item.reason))
            for item in found.values()
            if item.status is GetStatus.REJECTED and item.reason.isdigit()
        ]
        if again:
            found |= {item.name: item for item in await self._read(again)}
        return [found[item.name] for item in wanted]

    async def _read(self, wanted: Sequence[StoredName]) -> list[Found]:
        requests, checks, blocks = [], [], []
        for item in wanted:
            block = memoryview(bytearray(item.stored_bytes))
            check: FrameCheck | SizeCheck
            if self.is_framed and item.stored_bytes >= TRAILER_BYTES:
                payload, trailer = block[:-TRAILER_BYTES], block[-TRAILER_BYTES:]
                check = FrameCheck(item.name, payload, trailer)
                scatter = self.backend.capabilities.scatter
                buffers = (payload, trailer) if scatter else (block,)
            else:
                check, buffers = SizeCheck(item.name, block), (block,)
            requests.append(ReadRequest(item.name, buffers, check))
            checks.append(check)
            blocks.append(block)
        outcomes = await self.backend.read_many(requests)
        return [self._found(*of) for of in zip(wanted, outcomes, checks, blocks, strict=True)]

    def _found(
        self,
        item: StoredName,
        outcome: ReadOutcome,
        check: FrameCheck | SizeCheck,
        block: memoryview,
    ) -> Found:
        if isinstance(outcome.error, SizeMismatchError):
            return Found(item.name, GetStatus.REJECTED, reason=str(outcome.error.stored))
        if outcome.status is not GetStatus.HIT:
            return Found(item.name, outcome.status, reason=check.reason or str(outcome.error or ""))
        if self.is_framed and isinstance(check, SizeCheck):  # too small for a frame
            return Found(item.name, GetStatus.MISS, reason="foreign")
        return Found(item.name, GetStatus.HIT, block.toreadonly())

    async def write(self, values: Sequence[tuple[str, memoryview]]) -> list[WriteOutcome]:
        """Write values as they are to be stored; a frame's expiry is told to the tier, too."""
        requests = []
        outcomes: dict[str, WriteOutcome] = {}
        keeps_expiry = self.is_framed or self.backend.capabilities.native_ttl
        for name, stored in values:
            trailer = _trailer_of(name, stored)
            ttl_s = None
            if trailer is not None and trailer.expires_ms:
                if not keeps_expiry:
                    outcomes[name] = WriteOutcome(PutStatus.SKIPPED, "ttl_unsupported")
                    continue
                ttl_s = max(trailer.expires_ms - now_ms(), 1) / 1000
            requests.append(WriteRequest(name, stored.nbytes, partial(_itself, stored), ttl_s))
        written = await self.backend.write_many(requests)
        outcomes |= {of.name: outcome for of, outcome in zip(requests, written, strict=True)}
        return [outcomes[name] for name, _ in values]


@asynccontextmanager
async def open_tier(backend: Backend, *, is_framed: bool) -> AsyncIterator[OpenTier]:
    """Open a tier, and close it at the end.

    Raises:
        TieredKVError: It cannot be opened.
    """
    if isinstance(backend, ValkeyBackend):
        keep_off_stdout()
    try:
        with _ended_at_once():
            await backend.open()
        yield OpenTier(backend, is_framed=is_framed)
    finally:
        with anyio.CancelScope(shield=True):
            await backend.aclose()


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process: nothing has begun, and a server that hangs is waited for long."""

    def end(number: int, _frame: FrameType | None) -> None:
        with suppress(OSError, AttributeError):  # None if it was closed by the shell
            sys.stdout.flush()
        os._exit(128 + number)

    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def complain(error: TieredKVError) -> None:
    """Say on standard error what is wrong with one tier; the others are looked at nevertheless."""
    click.echo(f"tieredkv: {' '.join(str(error).split())}", err=True)


def sealed(name: str, payload: bytes, *, ttl_s: float | None, is_framed: bool) -> memoryview:
    """Return a value as it is to be stored now."""
    if not is_framed:
        return memoryview(payload)
    block = memoryview(bytearray(len(payload) + TRAILER_BYTES))
    block[: len(payload)] = payload
    expires_ms = 0 if ttl_s is None else expires_in(ttl_s)
    seal(block, name, generation=time.time_ns() // 1000, expires_ms=expires_ms)
    return block.toreadonly()


def payload_of(name: str, stored: memoryview) -> memoryview:
    """Return what a stored value holds, without its frame if it has one."""
    return stored if _trailer_of(name, stored) is None else stored[:-TRAILER_BYTES]


def _itself(stored: memoryview) -> memoryview:
    return stored


def _trailer_of(name: str, stored: memoryview) -> Trailer | None:
    """Return the trailer if the value is a valid frame for its name."""
    if stored.nbytes < TRAILER_BYTES:
        return None
    payload, tail = stored[:-TRAILER_BYTES], stored[-TRAILER_BYTES:]
    trailer = Trailer.unpack(tail)
    if trailer is None or trailer.payload_bytes != payload.nbytes:
        return None
    status = FrameCheck(name, payload, tail).result()
    return None if status is GetStatus.CORRUPT else trailer
