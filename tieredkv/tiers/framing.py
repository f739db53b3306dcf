"""How a store keeps values in its L2 tiers: framed, or bare."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, now_ms, seal
from tieredkv.results import GetStatus

if TYPE_CHECKING:
    from tieredkv.config import Integrity
    from tieredkv.pool.arena import Entry

__all__ = ["Check", "Framing"]

_NO_TRAILER: Final = bytes(TRAILER_BYTES)

Check: TypeAlias = FrameCheck | SizeCheck


class _CopyOut:
    """A check that hands the payload on to the caller's buffer once it has passed."""

    __slots__ = ("_block", "_check", "_out")

    def __init__(self, check: Check, block: memoryview, out: memoryview) -> None:
        self._check = check
        self._block = block
        self._out = out

    def feed(self, landed: memoryview) -> None:
        self._check.feed(landed)

    def result(self) -> GetStatus:
        status = self._check.result()
        if status is GetStatus.HIT and self._check.payload_bytes == self._out.nbytes:
            self._out[:] = self._block[: self._out.nbytes]
        return status


class Framing:
    """Turns entries and buffers into requests, in one mode for all tiers of a store.

    Attributes:
        framed: Whether values are stored as frames (``integrity="checksum"``).
        room_bytes: Bytes behind each payload in L1 for the trailer.
    """

    def __init__(self, integrity: Integrity) -> None:
        self.framed: bool = integrity == "checksum"
        self.room_bytes: int = TRAILER_BYTES if self.framed else 0

    def payload_bytes(self, stored_bytes: int) -> int | None:
        """Return the payload of a value stored with this size; None if it cannot be a frame."""
        payload = stored_bytes - self.room_bytes
        return payload if payload >= 0 else None

    def read(
        self,
        name: str,
        block: memoryview,
        *,
        scatter: bool,
        out: memoryview | None = None,
        urgent: bool = True,
    ) -> tuple[ReadRequest, Check]:
        """Return the request that lands a value in a block: payload and room behind it.

        Args:
            name: Wire name.
            block: Memory of an entry, as `Arena.writable` gives it.
            scatter: The backend takes payload and trailer apart, and may feed the check.
            out: Where to copy the payload, in the worker, when it has proved good.
            urgent: See `ReadRequest`.
        """
        if not self.framed:
            check: Check = SizeCheck(name, block)
            buffers: tuple[memoryview, ...] = (block,)
        else:
            payload, trailer = block[:-TRAILER_BYTES], block[-TRAILER_BYTES:]
            trailer[:] = _NO_TRAILER  # what lay there before could be an older frame of this name
            check = FrameCheck(name, payload, trailer)
            buffers = (payload, trailer) if scatter else (block,)
        judge = _CopyOut(check, block, out) if out else check
        return ReadRequest(name, buffers, judge, urgent), check

    def read_scattered(self, name: str, out: memoryview) -> tuple[ReadRequest, Check]:
        """Return the request that lands a payload in the caller's buffer."""
        if not self.framed:
            bare = SizeCheck(name, out)
            return ReadRequest(name, (out,), bare), bare
        trailer = memoryview(bytearray(TRAILER_BYTES))
        framed = FrameCheck(name, out, trailer)
        return ReadRequest(name, (out, trailer), framed), framed

    def write(self, entry: Entry, block: memoryview) -> WriteRequest:
        """Return the request that stores an entry now, for what is left of its time.

        `block` is its payload and the room behind. What has expired is written nevertheless: it
        takes the place of an older value.
        """
        ttl_s = None
        if entry.expires_ms:
            ttl_s = max(entry.expires_ms - now_ms(), 1) / 1000
        make = partial(_sealed, block, entry.name, entry.generation, entry.expires_ms)
        return WriteRequest(
            entry.name, block.nbytes, make if self.framed else block.toreadonly, ttl_s
        )


def _sealed(block: memoryview, name: str, generation: int, expires_ms: int) -> memoryview:
    seal(block, name, generation=generation, expires_ms=expires_ms)
    return block.toreadonly()
