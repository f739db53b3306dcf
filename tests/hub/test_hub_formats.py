"""Shards and xorbs are read, and files rebuilt from them, as the formats say."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieredkv.testing.hub.cas import ContentStore
from tieredkv.testing.hub.xet import EMPTY_FILE_HASH, XorbLayout, is_hash, read_shard

MAGIC = b"HFRepoMetaData\0".ljust(48, b"\x55")
END_OF_FILES = b"\xff" * 32 + b"\0" * 16


def text(raw: bytes) -> str:
    """Return a hash in Xet's form, written as the specification describes it."""
    return "".join(raw[start : start + 8][::-1].hex() for start in range(0, 32, 8))


def xorb(chunks: Sequence[bytes]) -> bytes:
    """Return a xorb of uncompressed chunks."""
    return b"".join(
        b"\0" + len(chunk).to_bytes(3, "little") + b"\0" + len(chunk).to_bytes(3, "little") + chunk
        for chunk in chunks
    )


def shard(
    files: Sequence[tuple[bytes, Sequence[tuple[bytes, int, int, int]]]], flags: int = 0
) -> bytes:
    """Return a shard: files of a hash and segments (xorb, bytes, first chunk, end chunk)."""
    parts = [MAGIC]
    for file_hash, segments in files:
        parts.append(file_hash + struct.pack("<II8x", flags, len(segments)))
        parts += [name + struct.pack("<4I", 0, *numbers) for name, *numbers in segments]
        parts += [b"\xee" * 48] * (len(segments) if flags & 1 << 31 else 0)
        parts += [b"\xdd" * 48] * bool(flags & 1 << 30)
    return b"".join([*parts, END_OF_FILES])


HASH = st.binary(min_size=32, max_size=32).filter(lambda raw: raw != b"\xff" * 32)
NUMBER = st.integers(0, 2**32 - 1)
SEGMENTS = st.lists(st.tuples(HASH, NUMBER, NUMBER, NUMBER), max_size=4)


@settings(deadline=None)
@given(
    files=st.lists(st.tuples(HASH, SEGMENTS), max_size=4),
    flags=st.sampled_from([0, 1 << 30, 1 << 31, 3 << 30]),
    rest=st.binary(max_size=100),
)
def test_a_shard_says_what_was_written(
    files: list[tuple[bytes, list[tuple[bytes, int, int, int]]]], flags: int, rest: bytes
) -> None:
    found = read_shard(shard(files, flags) + rest)
    assert [
        (file.hash, [(s.xorb, s.size, s.first, s.end) for s in file.segments]) for file in found
    ] == [
        (text(name), [(text(part), *numbers) for part, *numbers in segments])
        for name, segments in files
    ]
    assert [file.size for file in found] == [sum(s[1] for s in segments) for _, segments in files]


@settings(deadline=None)
@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_what_is_no_shard_is_refused(data: bytes, cut: int) -> None:
    whole = shard([(b"\1" * 32, [(b"\2" * 32, 5, 0, 1)])])
    for bad in (data, whole[: min(cut, len(whole) - 17)]):
        with pytest.raises(ValueError, match="shard"):
            read_shard(bad)


@settings(deadline=None)
@given(chunks=st.lists(st.binary(max_size=20), max_size=6), footer=st.booleans())
def test_a_layout_says_where_chunks_begin(chunks: list[bytes], *, footer: bool) -> None:
    data = xorb(chunks)
    layout = XorbLayout.of(data + (b"XETBLOB" + b"\1" * 30 if footer else b""))
    assert layout.chunks == len(chunks)
    for index, chunk in enumerate(chunks):
        assert data[layout.packed[index] : layout.packed[index + 1]] == xorb([chunk])
        assert layout.unpacked[index + 1] - layout.unpacked[index] == len(chunk)


@settings(deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=4), data=st.data())
def test_a_xorb_that_is_cut_is_refused(chunks: list[bytes], data: st.DataObject) -> None:
    whole = xorb(chunks)
    ends = {len(xorb(chunks[:count])) for count in range(len(chunks) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda length: length not in ends))
    with pytest.raises(ValueError, match="xorb"):
        XorbLayout.of(whole[:cut])


@settings(deadline=None)
@given(
    xorbs=st.lists(
        st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5), min_size=1, max_size=3
    ),
    data=st.data(),
)
def test_any_part_of_a_file_is_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, xorbs: list[list[bytes]], data: st.DataObject
) -> None:
    store = ContentStore(tmp_path_factory.mktemp("cas"))
    names = [bytes([index + 1]) * 32 for index in range(len(xorbs))]
    for name, chunks in zip(names, xorbs, strict=True):
        assert store.add_xorb(text(name), xorb(chunks))
        assert not store.add_xorb(text(name), xorb(chunks))
    segments, content = [], b""
    for _ in range(data.draw(st.integers(1, 4))):
        which = data.draw(st.integers(0, len(xorbs) - 1))
        first = data.draw(st.integers(0, len(xorbs[which]) - 1))
        end = data.draw(st.integers(first + 1, len(xorbs[which])))
        piece = b"".join(xorbs[which][first:end])
        segments.append((names[which], len(piece), first, end))
        content += piece
    store.add_shard(shard([(b"\7" * 32, segments)]))
    file = store.find(text(b"\7" * 32))
    assert file is not None
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start + 1, len(content)))

    plan = store.reconstruct(file, start, end)

    chunks_of = dict(zip(map(text, names), xorbs, strict=True))
    pieces = [b"".join(chunks_of[term.xorb][term.first : term.end]) for term in plan.terms]
    assert [term.size for term in plan.terms] == [len(piece) for piece in pieces]
    assert b"".join(pieces)[plan.skip :][: end - start] == content[start:end]
    assert 0 <= plan.skip < len(chunks_of[plan.terms[0].xorb][plan.terms[0].first])
    for term in plan.terms:
        fetches = plan.fetches[term.xorb]
        assert sum(f.first <= term.first and term.end <= f.end for f in fetches) == 1
        assert all(one.end < two.first for one, two in pairwise(fetches))
    for which_xorb, fetches in plan.fetches.items():
        raw = store.xorb_path(which_xorb).read_bytes()
        for fetch in fetches:
            wanted = xorb(chunks_of[which_xorb][fetch.first : fetch.end])
            assert raw[fetch.start_byte : fetch.end_byte] == wanted


def test_a_shard_may_name_only_what_is_here(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    name = os.urandom(32)
    with pytest.raises(ValueError, match="not here"):
        store.add_shard(shard([(b"\1" * 32, [(name, 3, 0, 1)])]))
    store.add_xorb(text(name), xorb([b"abc"]))
    for numbers in [(3, 0, 2), (4, 0, 1), (0, 1, 1)]:
        with pytest.raises(ValueError, match="no such chunks"):
            store.add_shard(shard([(b"\1" * 32, [(name, *numbers)])]))
    assert store.find(text(b"\1" * 32)) is None


def test_a_store_reads_what_others_have_put_there(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    wanted = text(b"\1" * 32)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "half.mdb").write_bytes(MAGIC)
    assert store.find(wanted) is None
    (tmp_path / "deep" / "half.mdb").write_bytes(shard([(b"\1" * 32, [(b"\2" * 32, 5, 0, 1)])]))
    file = store.find(wanted)
    assert file is not None
    assert file.size == 5


def test_the_empty_file_is_always_there(tmp_path: Path) -> None:
    file = ContentStore(tmp_path).find(EMPTY_FILE_HASH)
    assert file is not None
    assert file.size == 0


@pytest.mark.parametrize(
    "value", ["", "0" * 63, "G" * 64, "../" + "0" * 61, 0, None, "0" * 64 + "\n"]
)
def test_what_is_no_hash(value: object) -> None:
    assert not is_hash(value)
    assert is_hash("0123456789abcdef" * 4)
