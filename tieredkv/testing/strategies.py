"""Hypothesis strategies: keys of both kinds, wire names, values and their buffers, faults.

Edges come often: names that file systems, shells and servers take amiss, sizes around trailers and
pages. Needs hypothesis.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Final, get_args

from hypothesis import strategies as st

from tieredkv.config import KiB
from tieredkv.keys import MAX_STR_KEY_BYTES, Key, ObjectKey, wire_name_of
from tieredkv.testing.content import content
from tieredkv.testing.faults import FAULT_KINDS, Fault, FaultKind, FaultyOperation

__all__ = [
    "buffers",
    "fault_schedules",
    "faults",
    "keys",
    "object_keys",
    "sizes",
    "str_keys",
    "values",
    "wire_names",
]

_ODD_STR_KEYS: Final = (
    ".",
    "..",
    "../../escape",
    "/",
    "/absolute",
    "a/b",
    "a",
    "A",
    "a.",
    "a ",
    " ",
    "%",
    "%41",
    "%2E%2E",
    "a@b",
    "{tag}",
    "a\x00b",
    "line\nbreak",
    "\x7f\x85",
    "+",
    "-rf",
    "~",
    "*",
    "[a-z]?",
    "back\\slash",
    "CON",
    "\u00e9",  # one character, …
    "e\u0301",  # … and two that look the same
    "\U0001f600",
    "\u202egnp.exe",
    "k" * MAX_STR_KEY_BYTES,
    "%" * MAX_STR_KEY_BYTES,
    "\U0001f600" * (MAX_STR_KEY_BYTES // 4),
)
_EDGE_SIZES: Final = (0, 1, 2, 7, 8, 63, 64, 65, 127, 128, 4095, 4096, 4097, 65_536, 65_600)
_BUFFER_FORMATS: Final = ("B", "b", "H", "i", "d")


def object_keys() -> st.SearchStrategy[ObjectKey]:
    """Return valid `ObjectKey` values."""
    plain = st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="@{}")
    in_salt = st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="@{}/\\")
    ranks = st.one_of(st.sampled_from([0, 1, 0xFF, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
    return st.builds(
        ObjectKey,
        model_name=st.one_of(
            st.sampled_from(["llama", "org/model", "Org/Model", "..", "%41", "m" * 128]),
            st.text(plain, min_size=1, max_size=64),
        ),
        kv_rank=ranks,
        chunk_hash=st.binary(min_size=1, max_size=64),
        object_group_id=st.one_of(st.integers(0, 16), st.integers(0, 2**64)),
        cache_salt=st.one_of(st.just(""), st.text(in_salt, max_size=128)),
    )


def str_keys() -> st.SearchStrategy[str]:
    """Return valid `str` keys."""
    anything = st.characters(exclude_categories=["Cs"])
    return st.one_of(
        st.sampled_from(_ODD_STR_KEYS),
        st.text(st.characters(codec="ascii"), min_size=1, max_size=MAX_STR_KEY_BYTES),
        st.text(anything, min_size=1, max_size=MAX_STR_KEY_BYTES // 4),
    )


def keys() -> st.SearchStrategy[Key]:
    """Return valid keys of both kinds."""
    return st.one_of(object_keys(), str_keys())


def wire_names() -> st.SearchStrategy[str]:
    """Return wire names of both kinds of key."""
    return keys().map(wire_name_of)


def sizes(max_bytes: int = 128 * KiB) -> st.SearchStrategy[int]:
    """Return sizes of values, in bytes, from 0 to `max_bytes`."""
    edges = [size for size in _EDGE_SIZES if size <= max_bytes]
    return st.one_of(st.sampled_from(edges), st.integers(0, max_bytes))


def values(max_bytes: int = 128 * KiB) -> st.SearchStrategy[bytes]:
    """Return values of up to `max_bytes` bytes; drawn as seed and size, so large ones are cheap."""
    return st.builds(content, st.integers(0, 255), sizes(max_bytes))


@st.composite
def buffers(draw: st.DrawFn, max_bytes: int = 128 * KiB) -> tuple[bytes, object]:
    """Draw a value and an object with its bytes: C-contiguous, of some type, format and rank."""
    value = draw(values(max_bytes))
    kind = draw(st.sampled_from(("bytes", "bytearray", "array", "view", "rows", "slice")))
    if kind == "bytearray":
        return value, bytearray(value)
    if kind == "view":
        return value, memoryview(value)
    if kind == "slice":
        return value, memoryview(b"<" + value + b">")[1 : 1 + len(value)]
    if kind == "array":
        typecode = draw(st.sampled_from(_BUFFER_FORMATS))
        items = array.array(typecode)
        items.frombytes(value[: len(value) // items.itemsize * items.itemsize])
        return items.tobytes(), items
    if kind == "rows" and value and len(value) % 2 == 0:
        return value, memoryview(value).cast("B", (2, len(value) // 2))
    return value, value


def faults(
    operations: Sequence[FaultyOperation] = get_args(FaultyOperation),
    *,
    kinds: Sequence[FaultKind] = get_args(FaultKind),
    names: st.SearchStrategy[str | None] | None = None,
) -> st.SearchStrategy[Fault]:
    """Return single faults of these operations and kinds, on any name or on those of `names`.

    The kinds ``"late"`` and ``"hang"`` hold their caller: leave them out where nobody gives up.
    """
    possible = [
        (operation, kind)
        for operation in operations
        for kind in kinds
        if kind in FAULT_KINDS[operation]
    ]
    return st.sampled_from(possible).flatmap(
        lambda what: st.builds(
            Fault,
            st.just(what[0]),
            st.just(what[1]),
            name=st.none() if names is None else names,
            after=st.integers(0, 5),
            times=st.integers(1, 3),
        )
    )


def fault_schedules(
    operations: Sequence[FaultyOperation] = get_args(FaultyOperation),
    *,
    kinds: Sequence[FaultKind] = get_args(FaultKind),
    names: st.SearchStrategy[str | None] | None = None,
    max_faults: int = 5,
) -> st.SearchStrategy[list[Fault]]:
    """Return what a `FaultyBackend` takes: up to `max_faults` faults; see `faults`."""
    return st.lists(faults(operations, kinds=kinds, names=names), max_size=max_faults)
