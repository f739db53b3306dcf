"""What callers hand in: values to store and buffers to fill, as flat bytes."""

from __future__ import annotations

import re
from pickle import PickleBuffer
from typing import Final

from tieredkv.errors import ValueFormatError

__all__ = ["flat_target", "flat_value"]

_FIELD_NAMES: Final = re.compile(":[^:]*:")  # in a format of the struct kind


def flat_value(value: object) -> memoryview:
    """Return the bytes of a C-contiguous buffer of any format and rank, without a copy.

    Raises:
        TypeError: Not a buffer; the message says how to make one.
        ValueFormatError: Not C-contiguous.
    """
    return _view(value, "a value")


def flat_target(out: object) -> memoryview:
    """Return a writable C-contiguous buffer of any format and rank as flat bytes.

    Raises:
        TypeError: Not a buffer.
        ValueFormatError: Read-only, or not C-contiguous.
    """
    view = _view(out, "a buffer to read into")
    if view.readonly:
        raise ValueFormatError("the buffer to read into is read-only: pass a writable one")
    return view


def _view(source: object, what: str) -> memoryview:
    if type(source) is bytes or type(source) is bytearray:  # the common case
        return memoryview(source)
    if isinstance(source, str):
        raise TypeError(f"{what} is bytes, not str: encode it")
    try:
        view = memoryview(source)  # type: ignore[arg-type]  # decided by the attempt
    except (TypeError, ValueError, BufferError):
        remedy = ""
        if type(source).__module__.partition(".")[0] == "torch":
            remedy = ": use t.contiguous().view(torch.uint8).numpy()"
        elif hasattr(source, "dtype"):
            remedy = ": use x.view(np.uint8)"
        raise TypeError(
            f"{what} is an object with the buffer protocol, not {type(source).__name__}{remedy}"
        ) from None
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if "O" in _FIELD_NAMES.sub("", view.format):
        raise ValueFormatError(f"{what} must hold bytes, not references to Python objects")
    if not view.c_contiguous:
        raise ValueFormatError(f"{what} must be C-contiguous: pass np.ascontiguousarray(x)")
    # PickleBuffer flattens every format and rank, also those that memoryview.cast refuses.
    return PickleBuffer(view).raw()
