"""The directory as the disk backend should lay it out, written down a second time."""

from __future__ import annotations

import base64
import string
from pathlib import Path

import xxhash

BLOCK_BYTES = 4096


def path_in(root: Path, name: str) -> Path:
    """Return where the value of a wire name should be."""
    raw = name.encode()
    plain = (string.ascii_lowercase + string.digits + "-_.@").encode()
    file = "".join(chr(byte) if byte in plain else f"%{byte:02x}" for byte in raw)
    if file[0] == ".":
        file = "%2e" + file[1:]
    if len(file) > 200:
        packed = "+" + base64.b32encode(raw).decode().strip("=").lower()
        file = "+/".join(packed[at : at + 200] for at in range(0, len(packed), 200))
    return root / "objects" / f"{xxhash.xxh3_64_intdigest(raw) % 256:02x}" / file


def files_under(root: Path) -> list[Path]:
    """Return all values and temporary files that are there now."""
    return [
        path
        for folder in ("objects", "tmp")
        for path in (root / folder).rglob("*")
        if path.is_file()
    ]


def used_bytes(root: Path) -> int:
    """Return the room that values and temporary files take, as `du` counts it."""
    total = 0
    for folder in ("objects", "tmp"):
        for path in (root / folder).rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:  # it was removed right now
                continue
            if path.is_file():
                total += -(-status.st_size // BLOCK_BYTES) * BLOCK_BYTES
    return total
