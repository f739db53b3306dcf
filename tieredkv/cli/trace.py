"""Traces of real requests: files of JSON lines, plain or gzipped.

One line a request, in order of arrival: ``[time_s, [[first_id, run_length], ...]]``. The runs,
expanded, are the request's chain of chunk ids, head first. Blank lines are skipped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from tieredkv.cli.workload import Request
from tieredkv.config import MiB

__all__ = ["TraceError", "read_trace"]

_GZIP: Final = b"\x1f\x8b"
_MAX_LINE_BYTES: Final = 16 * MiB
_MAX_CHAIN: Final = 2**20
_MAX_ID: Final = 2**63 - 1
_MAX_TIME_S: Final = 1e12


class TraceError(ValueError):
    """A trace cannot be read; the message names file, line and what is wrong."""


def read_trace(path: Path, limit: int | None = None) -> list[Request]:
    """Return the requests of a trace, the first `limit` ones if given.

    Lines beyond the limit are not looked at.

    Raises:
        TraceError: The file cannot be read, is empty, or a line is out of form.
    """
    requests: list[Request] = []
    read = 0  # lines
    try:
        with path.open("rb") as file:
            for line in _lines(file):
                read += 1
                request = _request(line)
                if request is not None:
                    requests.append(request)
                if len(requests) == limit:
                    break
    except TraceError as error:
        raise TraceError(f"{path}:{read}: {error}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}:{read + 1}: the gzip data is damaged: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    if not requests:
        raise TraceError(f"{path}: no request in it")
    return requests


def _lines(file: BufferedReader) -> Iterator[bytes]:
    packed = file.peek(len(_GZIP)).startswith(_GZIP)
    source = gzip.GzipFile(fileobj=file) if packed else file
    while line := source.readline(_MAX_LINE_BYTES + 1):
        yield line  # or the first bytes of one that is too long


def _request(line: bytes) -> Request | None:
    if len(line) > _MAX_LINE_BYTES:
        raise TraceError(f"the line is longer than {_MAX_LINE_BYTES} bytes")
    if not line.strip():
        return None
    try:
        fields = json.loads(line.decode())
    except json.JSONDecodeError as error:
        raise TraceError(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, a huge number, deep nesting
        raise TraceError(f"not JSON: {error}") from None
    if not isinstance(fields, list) or len(fields) != 2:
        raise TraceError("not a request: expected [time_s, [[first_id, run_length], ...]]")
    time_s, runs = fields
    # A comparison, since an integer may be too large for a float; NaN fails it.
    if not _is_number(time_s) or not 0 <= time_s < _MAX_TIME_S:
        raise TraceError(f"time_s is {_shown(time_s)}: expected seconds, 0 or more")
    if not isinstance(runs, list) or not runs:
        raise TraceError("no runs of chunks: expected [[first_id, run_length], ...]")
    chain = tuple(_run(place, run) for place, run in enumerate(runs, 1))
    if (chunks := sum(map(len, chain))) > _MAX_CHAIN:
        raise TraceError(f"the chain has {chunks} chunks, at most {_MAX_CHAIN} are taken")
    return Request(float(time_s), chain)


def _run(place: int, run: object) -> range:
    if isinstance(run, list) and [type(number) for number in run] == [int, int]:
        first, length = run
        if first >= 0 and 1 <= length <= _MAX_CHAIN and first + length <= _MAX_ID:
            return range(first, first + length)
    raise TraceError(
        f"run {place} is {_shown(run)}: expected [first_id, run_length], "
        f"first_id 0 or more, run_length 1 to {_MAX_CHAIN}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
