"""Checkable contents: no wrong byte passes, and no other chunk's value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.cli.contents import MIN_VALUE_BYTES, Contents

VALUE_BYTES = 4096
CONTENTS = Contents(0, VALUE_BYTES)
chunks = st.integers(0, 2**63 - 1)


@given(chunk=chunks)
def test_the_value_of_a_chunk_is_right(chunk: int) -> None:
    assert CONTENTS.is_right(chunk, memoryview(CONTENTS.value(chunk)))


@given(chunk=chunks, place=st.integers(0, VALUE_BYTES - 1), change=st.integers(1, 255))
def test_any_single_wrong_byte_is_found_and_named(chunk: int, place: int, change: int) -> None:
    value = bytearray(CONTENTS.value(chunk))
    value[place] ^= change
    assert not CONTENTS.is_right(chunk, memoryview(value))
    problem = CONTENTS.problem(chunk, memoryview(value))
    assert problem == f"1 of {VALUE_BYTES} bytes are wrong, the first is byte {place}"


@given(chunk=chunks, other=chunks)
def test_the_value_of_another_chunk_is_found_and_named(chunk: int, other: int) -> None:
    value = memoryview(CONTENTS.value(other))
    assert CONTENTS.is_right(chunk, value) == (chunk == other)
    if (chunk - other) % 2**20:
        assert CONTENTS.problem(chunk, value) == f"the value of chunk {other} instead"


@given(
    chunk=st.integers(0, 2**40),
    distance=st.integers(1, 2**20 - 1),
    cut=st.integers(MIN_VALUE_BYTES, VALUE_BYTES - MIN_VALUE_BYTES),
)
def test_a_value_whose_tail_is_another_chunks_is_found(chunk: int, distance: int, cut: int) -> None:
    value = CONTENTS.value(chunk)[:cut] + CONTENTS.value(chunk + distance)[cut:]
    assert not CONTENTS.is_right(chunk, memoryview(value))


@pytest.mark.parametrize("nbytes", [0, 1, VALUE_BYTES - 1, VALUE_BYTES + 1])
def test_a_value_of_another_size_is_found_and_named(nbytes: int) -> None:
    value = memoryview((CONTENTS.value(7) + b"\0")[:nbytes])
    assert not CONTENTS.is_right(7, value)
    assert CONTENTS.problem(7, value) == f"{nbytes} bytes instead of {VALUE_BYTES}"


def test_contents_follow_from_the_seed() -> None:
    assert Contents(1, 64).value(5) == Contents(1, 64).value(5)
    assert Contents(1, 64).value(5) != Contents(2, 64).value(5)


def test_values_too_small_to_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="value_bytes=15 is below 16"):
        Contents(0, 15)
