"""What callers hand in: any C-contiguous buffer, flat and without a copy."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.errors import ValueFormatError
from tieredkv.tiers.buffers import flat_target, flat_value


class Frame(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int16), ("b", ctypes.c_double))


BUFFERS = {
    "bytes": b"\x01\x02\x03",
    "bytearray": bytearray(b"\x01\x02\x03"),
    "empty": b"",
    "signed bytes": memoryview(b"\x01\x02").cast("b"),
    "chars": memoryview(b"\x01\x02").cast("c"),
    "rank 3": memoryview(bytes(range(24))).cast("B", (2, 3, 4)),
    "array": array.array("d", [1.5, 2.5]),
    "ctypes array": (ctypes.c_int32 * 3)(1, 2, 3),
    "ctypes scalar": ctypes.c_int64(5),
    "structure": Frame(1, 2.0),
    "float16": np.arange(6, dtype=np.float16).reshape(2, 3),
    "long double": np.ones(3, dtype=np.longdouble),
    "complex": np.ones(3, dtype=np.complex64),
    "big endian": np.arange(3, dtype=">i4"),
    "bool": np.array([True, False]),
    "rank 0": np.array(1.5),
    "no rows": np.zeros((0, 3)),
    "text": np.array(["ab", "c"]),
    "record": np.zeros(2, dtype=[("Offset", "<i4"), ("b", "<f8")]),
    "read-only": np.broadcast_to(np.zeros((1, 4)), (1, 4)),
    "reversed single": np.arange(1)[::-1],
}


@pytest.mark.parametrize("source", BUFFERS.values(), ids=BUFFERS.keys())
def test_any_format_and_rank_becomes_flat_bytes(source: Any) -> None:
    flat = flat_value(source)
    assert (flat.format, flat.ndim, flat.itemsize) == ("B", 1, 1)
    assert flat.c_contiguous
    assert bytes(flat) == bytes(memoryview(source).tobytes())
    assert flat.nbytes == memoryview(source).nbytes
    flat[:]  # and it can be sliced


@given(
    shape=st.lists(st.integers(0, 5), max_size=5),
    kind=st.sampled_from(["u1", "i2", "<f4", ">f8", "S3", "?"]),
)
def test_arrays_of_any_shape(shape: list[int], kind: str) -> None:
    source = np.ones(shape, dtype=kind)
    assert bytes(flat_value(source)) == source.tobytes()


def test_no_copy() -> None:
    source = np.zeros((2, 3), dtype=np.int32)
    flat = flat_value(source)
    source[1, 2] = -1
    assert bytes(flat[-4:]) == b"\xff\xff\xff\xff"
    target = flat_target(source)
    target[:4] = b"\x01\x00\x00\x00"
    assert source[0, 0] == 1


def test_a_map_of_memory() -> None:
    with mmap.mmap(-1, 4096) as region:
        flat = flat_target(region)
        flat[:3] = b"abc"
        assert region[:3] == b"abc"
        flat.release()


def kind(value: object) -> str:
    return type(value).__name__


class TestRefusals:
    @pytest.mark.parametrize(
        "source",
        [
            np.zeros((4, 4))[:, ::2],
            np.zeros((4, 4)).T[:3],
            np.asfortranarray(np.zeros((2, 3))),
            memoryview(b"abcdef")[::2],
            memoryview(b"abcdef")[::-1],
            np.broadcast_to(np.zeros(4), (2, 4)),
        ],
        ids=["strided", "columns", "fortran", "step", "backwards", "broadcast"],
    )
    def test_not_contiguous_names_the_remedy(self, source: Any) -> None:
        for take in (flat_value, flat_target):
            with pytest.raises(ValueFormatError, match="ascontiguousarray"):
                take(source)

    def test_text_is_told_to_encode(self) -> None:
        with pytest.raises(TypeError, match="encode"):
            flat_value("text")

    @pytest.mark.parametrize("source", [None, 1, 1.5, [1, 2], {"a": 1}, object()], ids=kind)
    def test_no_buffer_at_all(self, source: object) -> None:
        with pytest.raises(TypeError, match="buffer protocol"):
            flat_value(source)

    def test_a_torch_tensor_names_the_remedy(self) -> None:
        tensor = type("Tensor", (), {"__module__": "torch"})()
        with pytest.raises(TypeError, match=r"t\.contiguous\(\)\.view\(torch\.uint8\)\.numpy\(\)"):
            flat_value(tensor)

    def test_a_type_that_numpy_cannot_export_names_the_remedy(self) -> None:
        with pytest.raises(TypeError, match=r"x\.view\(np\.uint8\)"):
            flat_value(np.array(["2020-01-01"], dtype="datetime64[D]"))

    @pytest.mark.parametrize(
        "dtype", ["O", [("a", "<i4"), ("b", "O")], [("a", [("b", "O")])], "(2,)O"], ids=str
    )
    def test_references_to_objects_are_not_bytes(self, dtype: Any) -> None:
        source = np.zeros(2, dtype=dtype)
        for take in (flat_value, flat_target):
            with pytest.raises(ValueFormatError, match="references"):
                take(source)

    def test_a_released_view(self) -> None:
        source = memoryview(b"abc")
        source.release()
        with pytest.raises(TypeError):
            flat_value(source)

    @pytest.mark.parametrize(
        "out", [b"abc", memoryview(bytearray(3)).toreadonly()], ids=["bytes", "memoryview"]
    )
    def test_a_read_only_target(self, out: object) -> None:
        with pytest.raises(ValueFormatError, match="read-only"):
            flat_target(out)
        flat_value(out)
