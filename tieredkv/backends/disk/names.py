"""File names: any wire name as a path below the root, and back.

A path is ``objects/<shard>/<file>``; the shard, two hex digits of the name's digest, keeps
directories small. The file name is the wire name's UTF-8 with every byte but ``a-z 0-9 - _ . @``
written as ``%xx`` in lower case, so that two names never meet, not even where the file system
ignores case; a leading dot is written that way, too. What would be longer than file systems take is
written as ``+`` and base32 instead, in segments, each but the last a directory that ends in ``+``.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import xxhash

__all__ = ["OBJECTS", "SHARDS", "name_of", "path_of", "place_of"]

OBJECTS: Final = "objects"
SHARDS: Final = tuple(f"{shard:02x}" for shard in range(256))

_SEGMENT_CHARS: Final = 200  # file systems take 255 bytes a segment
_PLAIN: Final = b"abcdefghijklmnopqrstuvwxyz0123456789-_.@"
_ENCODED: Final = tuple(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256))
_ESCAPE: Final = re.compile(rb"%([0-9a-f]{2})")


def place_of(name: str) -> tuple[int, str]:
    """Return a wire name's shard, by number, and its file, relative to that shard's directory."""
    raw = name.encode()
    file = name
    if raw.translate(None, _PLAIN):  # faster than a regular expression
        file = "".join([_ENCODED[byte] for byte in raw])
    if file.startswith("."):
        file = f"%2e{file[1:]}"
    if len(file) > _SEGMENT_CHARS:
        packed = "+" + base64.b32encode(raw).decode().rstrip("=").lower()
        file = "+/".join(
            packed[at : at + _SEGMENT_CHARS] for at in range(0, len(packed), _SEGMENT_CHARS)
        )
    return xxhash.xxh3_64_intdigest(raw) & 0xFF, file


def path_of(name: str) -> str:
    """Return the path of a wire name's file, relative to the root."""
    shard, file = place_of(name)
    return f"{OBJECTS}/{SHARDS[shard]}/{file}"


def name_of(shard: int, file: str) -> str | None:
    """Return the wire name whose place this is, or None if it is no value's."""
    try:
        if file.startswith("+"):
            packed = file[1:].replace("+/", "").upper()
            raw = base64.b32decode(packed + "=" * (-len(packed) % 8))
        else:
            raw = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), file.encode())
        name = raw.decode()
    except (UnicodeError, binascii.Error):
        return None
    return name if name and place_of(name) == (shard, file) else None
