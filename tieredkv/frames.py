"""Frames: how a stored value proves that it is whole, current and the one that was asked for.

A frame is the payload followed by a trailer of 64 bytes, little-endian::

    0   4s   magic      "TKV1"
    4   B    version    1
    5   B    flags      0
    6   H    reserved   0
    8   Q    payload    bytes
    16  Q    generation of the write
    24  Q    expiry     Unix milliseconds, 0 = never
    32  16s  name       XXH3-128 digest of the wire name's UTF-8
    48  Q    reserved   0
    56  Q    checksum   XXH3-64 of the payload followed by the 56 bytes above

All digests have seed 0. The trailer follows the payload, so that a block of L1 memory with room for
it is written in one piece and a reader's buffer takes the payload alone. The name's digest catches
values that were swapped between keys; the checksum catches every other change, also of the trailer.

A trailer without the magic, or with a version or flag unknown to us, is *foreign*: a miss, and
never deleted. Anything else wrong with it is corruption.

xxhash releases the GIL while it digests, so checks of large values run beside each other.
"""

from __future__ import annotations

import struct
import time
from typing import Final, NamedTuple

import xxhash

from tieredkv.results import GetStatus

__all__ = ["TRAILER_BYTES", "FrameCheck", "SizeCheck", "Trailer", "expires_in", "now_ms", "seal"]

_LONGEST_TTL_S: Final = 1e15  # a trailer has 8 bytes for its milliseconds

TRAILER_BYTES: Final = 64

_LAYOUT: Final = struct.Struct("<4sBBHQQQ16sQQ")
_MAGIC: Final = b"TKV1"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBBHQQQ16sQ")  # what is digested of it
_CHECKSUM_BYTES: Final = 8


class Trailer(NamedTuple):
    """The last 64 bytes of a frame.

    Attributes:
        payload_bytes: Size of the payload.
        generation: Number of the write; later writes have higher ones.
        expires_ms: Unix milliseconds after which the value counts as absent; 0 for never.
        name_digest: XXH3-128 of the wire name.
        checksum: XXH3-64 of payload and trailer.
    """

    payload_bytes: int
    generation: int
    expires_ms: int
    name_digest: bytes
    checksum: int

    @classmethod
    def unpack(cls, trailer: memoryview) -> Trailer | None:
        """Return the trailer in these 64 bytes, or None if they are foreign."""
        magic, version, flags, _, payload_bytes, generation, expires_ms, digest, _, checksum = (
            _LAYOUT.unpack(trailer)
        )
        if magic != _MAGIC or version != _VERSION or flags != 0:
            return None
        return cls(payload_bytes, generation, expires_ms, digest, checksum)


def expires_in(ttl_s: float) -> int:
    """Return in Unix milliseconds when what lives so long from now on expires."""
    return now_ms() + max(1, round(min(ttl_s, _LONGEST_TTL_S) * 1000))


def now_ms() -> int:
    """Return the wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def seal(block: memoryview, wire_name: str, *, generation: int, expires_ms: int = 0) -> None:
    """Write the trailer of the payload in ``block[:-64]`` into ``block[-64:]``.

    Sealing the same payload with the same arguments again writes the same bytes, so two threads
    may do it at once. Runs in a worker thread: it digests the whole payload.

    Args:
        block: Writable bytes, payload and room for the trailer.
        wire_name: The name under which the frame will be stored.
        generation: Number of the write.
        expires_ms: Unix milliseconds, 0 for never.
    """
    payload_bytes = block.nbytes - TRAILER_BYTES
    head = _HEAD.pack(
        _MAGIC, _VERSION, 0, 0, payload_bytes, generation, expires_ms, _digest(wire_name), 0
    )
    hasher = xxhash.xxh3_64(block[:payload_bytes])
    hasher.update(head)
    # The trailer is never half written: a second thread would digest what this one is changing.
    block[payload_bytes:] = head + hasher.intdigest().to_bytes(_CHECKSUM_BYTES, "little")


class FrameCheck:
    """Verifies one frame after it has landed; made on the event loop, run in a worker thread.

    Attributes:
        generation: After a HIT, the generation of the write.
        expires_ms: After a HIT, when the value expires; 0 for never.
        payload_bytes: After a HIT, the size of the payload.
        reason: After a MISS: ``"foreign"``, ``"expired"`` or ``"stale_rejected"``.
    """

    __slots__ = (
        "_fed",
        "_hasher",
        "_name",
        "_payload",
        "_trailer",
        "expires_ms",
        "floor",
        "generation",
        "payload_bytes",
        "reason",
    )

    def __init__(
        self, wire_name: str, payload: memoryview, trailer: memoryview, *, floor: int = 0
    ) -> None:
        """Take the places where the frame will land.

        Args:
            wire_name: The name that was asked for.
            payload: Where the payload lands.
            trailer: Where the 64 bytes of the trailer land.
            floor: Lowest generation that is acceptable.
        """
        self._name = wire_name
        self._payload = payload
        self._trailer = trailer
        self._hasher: xxhash.xxh3_64 | None = None
        self._fed = 0
        self.floor: int = floor
        self.generation: int = 0
        self.expires_ms: int = 0
        self.payload_bytes: int = payload.nbytes
        self.reason: str = ""

    def feed(self, landed: memoryview) -> None:
        """Digest the next bytes of the payload, in order, while they are still in the cache.

        Optional. A backend that feeds must feed the whole payload, and nothing of the trailer.
        """
        if self._hasher is None:
            self._hasher = xxhash.xxh3_64()
        self._hasher.update(landed)
        self._fed += landed.nbytes

    def result(self) -> GetStatus:
        """Return HIT, MISS (see `reason`) or CORRUPT. Called once, after all has landed."""
        trailer = Trailer.unpack(self._trailer)
        if trailer is None:
            return self._miss("foreign")
        hasher = self._hasher
        if hasher is None or self._fed != self._payload.nbytes:
            hasher = xxhash.xxh3_64(self._payload)
        hasher.update(self._trailer[: _HEAD.size])
        if (
            trailer.payload_bytes != self._payload.nbytes
            or trailer.name_digest != _digest(self._name)
            or trailer.checksum != hasher.intdigest()
        ):
            return GetStatus.CORRUPT
        if trailer.expires_ms and trailer.expires_ms <= now_ms():
            return self._miss("expired")
        if trailer.generation < self.floor:
            return self._miss("stale_rejected")
        self.generation = trailer.generation
        self.expires_ms = trailer.expires_ms
        return GetStatus.HIT

    def _miss(self, reason: str) -> GetStatus:
        self.reason = reason
        return GetStatus.MISS


class SizeCheck:
    """Stands in for `FrameCheck` where values are stored bare and only their size is checked.

    A value whose tail is a valid frame for this name was written by a store with checksums; its
    trailer is not part of the payload.

    Attributes:
        generation: As in `FrameCheck`; 0 for a bare value.
        expires_ms: As in `FrameCheck`; 0 for a bare value.
        payload_bytes: Size of the payload: all that landed, or less the trailer.
        reason: As in `FrameCheck`.
    """

    __slots__ = ("_landed", "_name", "expires_ms", "floor", "generation", "payload_bytes", "reason")

    def __init__(self, wire_name: str, landed: memoryview, *, floor: int = 0) -> None:
        """Take the place where the value will land.

        Args:
            wire_name: The name that was asked for.
            landed: Where all stored bytes land.
            floor: Lowest generation that is acceptable, where the value tells one.
        """
        self._name = wire_name
        self._landed = landed
        self.floor: int = floor
        self.generation: int = 0
        self.expires_ms: int = 0
        self.payload_bytes: int = landed.nbytes
        self.reason: str = ""

    def feed(self, landed: memoryview) -> None:
        """Do nothing: there is nothing to digest."""

    def result(self) -> GetStatus:
        """Return HIT, or MISS if the tail is a frame for this name that is expired or stale."""
        cut = self._landed.nbytes - TRAILER_BYTES
        if cut < 0 or self._landed[cut : cut + len(_MAGIC)].tobytes() != _MAGIC:
            return GetStatus.HIT
        frame = FrameCheck(self._name, self._landed[:cut], self._landed[cut:], floor=self.floor)
        status = frame.result()
        if status is GetStatus.CORRUPT or frame.reason == "foreign":
            return GetStatus.HIT  # the tail only looks like a trailer
        self.generation, self.expires_ms = frame.generation, frame.expires_ms
        self.payload_bytes, self.reason = cut, frame.reason
        return status


def _digest(wire_name: str) -> bytes:
    return xxhash.xxh3_128_digest(wire_name.encode())
