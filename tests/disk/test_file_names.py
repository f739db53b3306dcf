"""File names: every wire name has one, and no two share it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.calls import get, names, opened, put
from tests.disk.layout import path_in
from tieredkv import ObjectKey
from tieredkv.backends import DiskBackend
from tieredkv.backends.disk.names import SHARDS, name_of, path_of, place_of
from tieredkv.keys import Key, wire_name_of

HARD: list[Key] = [
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "/",
    " ",
    "con",
    "lpt1.txt",
    "name.",
    "A",
    "a",
    "%41",
    "+",
    "+a",
    "é",
    "e\u0301",
    "🗝" * 128,
    "x" * 512,
    "X" * 512,
    "/" * 512,
    ObjectKey("meta-llama/Llama-3-8B", 0xFF, bytes(range(32)), cache_salt="user-42"),
    ObjectKey("m", 0, bytes(600)),
    "\n\t\x7f",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=600)


@given(texts)
@example(".")
@example("..")
@example("+" + "a" * 199)
@example("a" * 200)
@example("a" * 201)
@example("A" * 125)
def test_the_name_is_read_back_from_its_file(name: str) -> None:
    shard, file = place_of(name)
    assert name_of(shard, file) == name
    assert path_of(name) == f"objects/{SHARDS[shard]}/{file}"


@given(texts)
def test_every_file_system_takes_it(name: str) -> None:
    segments = path_of(name).split("/")
    assert all(0 < len(segment) <= 255 and segment.isascii() for segment in segments)
    assert all(segment.lower() == segment and segment[0] != "." for segment in segments)


@given(texts, texts)
@example("Key", "key")
@example("e\u0301", "é")
def test_two_names_never_share_a_file_even_where_case_is_ignored(one: str, two: str) -> None:
    assert (path_of(one).casefold() == path_of(two).casefold()) == (one == two)


@given(texts)
@example("\U0010ffff" * 300)
def test_files_are_where_they_were_in_every_version(name: str) -> None:
    assert Path(path_of(name)) == path_in(Path(), name)


@pytest.mark.parametrize("file", ["A", "%4c%", "%zz", "%ff", "+", "+1", "x.tmp", ".hidden", "%61"])
def test_what_no_name_leads_to_is_no_value(file: str) -> None:
    found = [shard for shard in range(256) if name_of(shard, file) is not None]
    assert found == ([place_of("x.tmp")[0]] if file == "x.tmp" else [])


@pytest.mark.anyio
async def test_values_under_hard_names_are_kept_apart(tmp_path: Path) -> None:
    wire_names = [wire_name_of(key) for key in HARD]
    async with opened(DiskBackend(tmp_path / "root")) as backend:
        for name in wire_names:
            await put(backend, name, name.encode())
        for name in wire_names:
            assert await get(backend, name, len(name.encode())) == name.encode()
        assert await names(backend) == sorted(wire_names)
        assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.anyio
async def test_directories_of_long_names_go_with_their_last_value(tmp_path: Path) -> None:
    shared = "long/" * 60
    async with opened(DiskBackend(tmp_path)) as backend:
        for number in range(20):
            await put(backend, f"{shared}{number}", b"value")
        await backend.delete_many([f"{shared}{number}" for number in range(20)])
        left = list((tmp_path / "objects").rglob("*+"))
        assert left == []
        await put(backend, f"{shared}0", b"again")
        assert await get(backend, f"{shared}0", 5) == b"again"


@pytest.mark.anyio
async def test_only_their_user_may_read_values(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path / "root", durability="fsync")) as backend:
        await put(backend, "name", b"value")
        await put(backend, "long" * 200, b"value")
        for path in (tmp_path / "root").rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700
