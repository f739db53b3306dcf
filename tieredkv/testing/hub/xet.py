"""Xet's formats, as far as a server must read them: hashes, shards, xorbs.

Source: the Xet protocol specification, https://huggingface.co/docs/xet (shard, xorb, hashing), and
what hf_xet sends. Contents are not verified here: that takes BLAKE3 and LZ4, and a store that
trusts its own checksum is tested best against a CAS that proves nothing.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, TypeGuard

import attrs

__all__ = ["EMPTY_FILE_HASH", "Segment", "XetFile", "XorbLayout", "is_hash", "read_shard"]

EMPTY_FILE_HASH: Final = "0" * 64
"""The hash of a file without bytes; no shard needs to describe it."""

_HASH_TEXT: Final = re.compile(r"[0-9a-f]{64}")
_SHARD_MAGIC: Final = b"HFRepoMetaData\x00"
_RECORD_BYTES: Final = 48
_FILE_RECORD: Final = struct.Struct("<32sII8x")  # hash, flags, number of segments
_SEGMENT_RECORD: Final = struct.Struct("<32sIIII")  # xorb, flags, bytes, first and end chunk
_END_OF_FILES: Final = b"\xff" * 32
_HAS_VERIFICATION: Final = 1 << 31  # one more record for each segment
_HAS_METADATA: Final = 1 << 30  # one more record
_CHUNK_HEADER_BYTES: Final = 8
_XORB_FOOTER: Final = b"XETBLOB"


def is_hash(text: object) -> TypeGuard[str]:
    """Whether `text` is a hash in Xet's textual form."""
    return isinstance(text, str) and _HASH_TEXT.fullmatch(text) is not None


def _hash_text(raw: bytes) -> str:
    """Four little-endian 64-bit numbers, each as 16 hexadecimal digits."""
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", raw))


@attrs.frozen
class Segment:
    """A run of chunks of one xorb.

    Attributes:
        xorb: Hash of the xorb.
        size: Bytes of the chunks, unpacked.
        first: Index of the first chunk.
        end: Index after the last chunk.
    """

    xorb: str
    size: int
    first: int
    end: int


@attrs.frozen
class XetFile:
    """A file as a shard describes it.

    Attributes:
        hash: Its hash.
        segments: Where its bytes are, in order.
    """

    hash: str
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(segment.size for segment in self.segments)


def read_shard(data: bytes) -> list[XetFile]:
    """Return the files that a shard describes; its other sections are not needed.

    Raises:
        ValueError: The bytes are not a whole shard.
    """
    if not data.startswith(_SHARD_MAGIC):
        raise ValueError("not a shard: its magic is missing")
    try:
        return list(_files_of_shard(data))
    except struct.error as error:
        raise ValueError(f"a shard ends early: {error}") from None


def _files_of_shard(data: bytes) -> Iterator[XetFile]:
    position = _RECORD_BYTES
    while True:
        raw, flags, count = _FILE_RECORD.unpack_from(data, position)
        if raw == _END_OF_FILES:
            return
        position += _RECORD_BYTES
        segments = []
        for index in range(count):
            xorb, _, size, first, end = _SEGMENT_RECORD.unpack_from(
                data, position + index * _RECORD_BYTES
            )
            segments.append(Segment(_hash_text(xorb), size, first, end))
        position += _RECORD_BYTES * count * (2 if flags & _HAS_VERIFICATION else 1)
        position += _RECORD_BYTES if flags & _HAS_METADATA else 0
        yield XetFile(_hash_text(raw), tuple(segments))


@attrs.frozen
class XorbLayout:
    """Where the chunks of a xorb begin.

    Attributes:
        packed: Offset of each chunk's header in the xorb, then the end of the last chunk.
        unpacked: Bytes before each chunk when unpacked, then all bytes.
    """

    packed: tuple[int, ...]
    unpacked: tuple[int, ...]

    @classmethod
    def of(cls, data: bytes) -> XorbLayout:
        """Return the layout of a xorb, with or without a footer.

        Raises:
            ValueError: A chunk reaches behind the end.
        """
        packed, unpacked = [0], [0]
        while (start := packed[-1]) < len(data) and not data.startswith(_XORB_FOOTER, start):
            # version, packed size (24 bits), compression scheme, unpacked size (24 bits)
            header = data[start : start + _CHUNK_HEADER_BYTES]
            end = start + _CHUNK_HEADER_BYTES + int.from_bytes(header[1:4], "little")
            if len(header) < _CHUNK_HEADER_BYTES or end > len(data):
                raise ValueError("a xorb ends inside a chunk")
            packed.append(end)
            unpacked.append(unpacked[-1] + int.from_bytes(header[5:8], "little"))
        return cls(tuple(packed), tuple(unpacked))

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return len(self.packed) - 1

    def holds(self, segment: Segment) -> bool:
        """Whether the chunks of `segment` exist and have its size."""
        return (
            segment.first < segment.end <= self.chunks
            and self.unpacked[segment.end] - self.unpacked[segment.first] == segment.size
        )

    def chunks_of(self, segment: Segment, start: int, end: int) -> tuple[int, int]:
        """Return the chunks, as ``(first, end)``, that have bytes `start` to `end` of a segment."""
        base = self.unpacked[segment.first]
        first = bisect_right(self.unpacked, base + start, segment.first, segment.end) - 1
        return first, bisect_left(self.unpacked, base + end, first + 1, segment.end)
