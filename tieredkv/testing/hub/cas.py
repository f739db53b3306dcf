"""The content-addressed store behind the buckets: xorbs, shards, and how to rebuild a file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tieredkv.testing.hub.xet import EMPTY_FILE_HASH, XetFile, XorbLayout, read_shard

__all__ = ["ContentStore", "Fetch", "Reconstruction", "Term"]

_SHARD_SUFFIX: Final = ".mdb"


@attrs.frozen
class Term:
    """A run of chunks whose unpacked bytes are the next of the file.

    Attributes:
        xorb: Hash of the xorb.
        first: Index of the first chunk.
        end: Index after the last chunk.
        size: Bytes of the chunks, unpacked.
    """

    xorb: str
    first: int
    end: int
    size: int


@attrs.frozen
class Fetch:
    """A run of chunks that a client fetches at once, for one term or several.

    Attributes:
        first: Index of the first chunk.
        end: Index after the last chunk.
        start_byte: Where the run begins in the xorb.
        end_byte: Where it ends.
    """

    first: int
    end: int
    start_byte: int
    end_byte: int


@attrs.frozen
class Reconstruction:
    """How to rebuild a part of a file.

    Attributes:
        skip: Bytes to drop at the beginning of the first term.
        terms: What the part consists of, in order.
        fetches: For each xorb, what to fetch, in order; runs that overlap are one, or hf_xet
            takes the wrong one.
    """

    skip: int
    terms: tuple[Term, ...]
    fetches: Mapping[str, Sequence[Fetch]]


class ContentStore:
    """Xorbs and shards in a directory. Any thread may call.

    The directory may also be one that hf_xet fills by itself through a ``local://`` address: then
    only `find` is of use, which reads the shards wherever they are below it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._xorbs = directory / "xorbs"
        self._shards = directory / "shards"
        self._lock = threading.Lock()
        self._files: dict[str, XetFile] = {EMPTY_FILE_HASH: XetFile(EMPTY_FILE_HASH, ())}
        self._layouts: dict[str, XorbLayout] = {}
        self._read_shards: set[Path] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, file_hash: str) -> XetFile | None:
        """Return the file with this hash; None if no shard describes it."""
        with self._lock:
            if file_hash not in self._files:
                self._read_new_shards()
            return self._files.get(file_hash)

    def xorb_path(self, xorb_hash: str) -> Path:
        """Return where a xorb is, or would be."""
        return self._xorbs / xorb_hash

    def add_xorb(self, xorb_hash: str, data: bytes) -> bool:
        """Store a xorb; False if it was there.

        Raises:
            ValueError: The bytes are not a whole xorb.
        """
        layout = XorbLayout.of(data)
        path = self.xorb_path(xorb_hash)
        is_new = not path.exists()
        _write_whole(path, data)
        with self._lock:
            self._layouts[xorb_hash] = layout
        return is_new

    def add_shard(self, data: bytes) -> None:
        """Store a shard, which makes its files known.

        Raises:
            ValueError: The bytes are not a whole shard, or it names chunks that are not here.
        """
        files = read_shard(data)
        for segment in (segment for file in files for segment in file.segments):
            if not self.xorb_path(segment.xorb).exists():
                raise ValueError(f"xorb {segment.xorb} is not here")
            if not self.layout(segment.xorb).holds(segment):
                raise ValueError(f"xorb {segment.xorb} has no such chunks")
        path = self._shards / (hashlib.sha256(data).hexdigest() + _SHARD_SUFFIX)
        _write_whole(path, data)
        with self._lock:
            self._read_shards.add(path)
            self._files.update((file.hash, file) for file in files)

    def layout(self, xorb_hash: str) -> XorbLayout:
        """Return where the chunks of a xorb are.

        Raises:
            FileNotFoundError: There is no such xorb.
        """
        with self._lock:
            layout = self._layouts.get(xorb_hash)
        if layout is None:
            layout = XorbLayout.of(self.xorb_path(xorb_hash).read_bytes())
            with self._lock:
                self._layouts[xorb_hash] = layout
        return layout

    def reconstruct(self, file: XetFile, start: int, end: int) -> Reconstruction:
        """Return how to rebuild bytes `start` to `end` of a file from as few chunks as possible.

        Raises:
            FileNotFoundError: A xorb is gone.
        """
        terms: list[Term] = []
        skip = 0
        position = 0
        for segment in file.segments:
            low, high = max(start - position, 0), min(end - position, segment.size)
            position += segment.size
            if low >= high:
                continue
            layout = self.layout(segment.xorb)
            first, last = layout.chunks_of(segment, low, high)
            if not terms:
                skip = layout.unpacked[segment.first] + low - layout.unpacked[first]
            size = layout.unpacked[last] - layout.unpacked[first]
            terms.append(Term(segment.xorb, first, last, size))
        xorbs = dict.fromkeys(term.xorb for term in terms)
        return Reconstruction(skip, tuple(terms), {x: self._fetches(x, terms) for x in xorbs})

    def _fetches(self, xorb: str, terms: Sequence[Term]) -> list[Fetch]:
        packed = self.layout(xorb).packed
        runs: list[tuple[int, int]] = []
        for first, end in sorted((term.first, term.end) for term in terms if term.xorb == xorb):
            if runs and first <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
            else:
                runs.append((first, end))
        return [Fetch(first, end, packed[first], packed[end]) for first, end in runs]

    def _read_new_shards(self) -> None:
        for path in _shards_below(self.directory):
            # Another process may still be writing it; then it is read the next time.
            if path not in self._read_shards:
                with contextlib.suppress(ValueError, FileNotFoundError):
                    self._files.update((f.hash, f) for f in read_shard(path.read_bytes()))
                    self._read_shards.add(path)


def _shards_below(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        yield from (Path(folder, name) for name in names if name.endswith(_SHARD_SUFFIX))


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that a reader sees whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.write_bytes(data)
    draft.replace(path)
