"""Traces: what is read, and what is said of those that cannot be."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tieredkv.cli.trace import TraceError, read_trace
from tieredkv.cli.workload import Request

TEXT = b"[0.0, [[0, 3]]]\n[1, [[0, 2], [7, 1]]]\n\n[2.5, [[9, 1]]]\n"
REQUESTS = [
    Request(0.0, (range(3),)),
    Request(1.0, (range(2), range(7, 8))),
    Request(2.5, (range(9, 10),)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.mark.parametrize("content", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzipped"])
def test_a_trace_is_read_whatever_its_name(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_trace(path) == REQUESTS
    assert [request.chunks for request in read_trace(path)] == [[0, 1, 2], [0, 1, 7], [9]]


def test_lines_beyond_the_limit_are_not_looked_at(path: Path) -> None:
    path.write_bytes(TEXT.replace(b"[2.5", b"garbage"))
    assert read_trace(path, 2) == REQUESTS[:2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"hello", "not JSON: Expecting value at column 1"),
        (b"\xff\xfe", "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "not JSON: "),
        (b"[" + b"9" * 5000 + b", [[0, 1]]]", "not JSON: Exceeds the limit"),
        (b"{}", "not a request: expected [time_s, [[first_id, run_length], ...]]"),
        (b"[1]", "not a request: "),
        (b'["1", [[0, 1]]]', 'time_s is "1": expected seconds, 0 or more'),
        (b"[true, [[0, 1]]]", "time_s is true: "),
        (b"[-1, [[0, 1]]]", "time_s is -1: "),
        (b"[NaN, [[0, 1]]]", "time_s is NaN: "),
        (b"[1e999, [[0, 1]]]", "time_s is Infinity: "),
        (b"[" + b"9" * 400 + b", [[0, 1]]]", "time_s is 999"),
        (b"[1, []]", "no runs of chunks: expected [[first_id, run_length], ...]"),
        (b"[1, 5]", "no runs of chunks: "),
        (b"[1, [[0, 1], [5]]]", "run 2 is [5]: expected [first_id, run_length], "),
        (b"[1, [7]]", "run 1 is 7: "),
        (b"[1, [[-1, 1]]]", "run 1 is [-1, 1]: "),
        (b"[1, [[0, 0]]]", "run 1 is [0, 0]: "),
        (b"[1, [[0, true]]]", "run 1 is [0, true]: "),
        (b"[1, [[0.0, 1]]]", "run 1 is [0.0, 1]: "),
        (b"[1, [[9223372036854775807, 1]]]", "run 1 is [9223372036854775807, 1]: "),
        (b"[1, [[0, 1048577]]]", "run 1 is [0, 1048577]: "),
        (b"[1, [[0, 1048576], [0, 1]]]", "the chain has 1048577 chunks, at most 1048576"),
    ],
)
def test_a_line_out_of_form_is_named_with_file_and_line(
    path: Path, line: bytes, problem: str
) -> None:
    path.write_bytes(b"[0, [[0, 1]]]\n" + line + b"\n[0, [[0, 1]]]\n")
    with pytest.raises(TraceError, match=rf"^{re.escape(f'{path}:2: {problem}')}"):
        read_trace(path)


def test_a_line_without_end_is_given_up(path: Path) -> None:
    path.write_bytes(b" " * (16 * 2**20 + 1))
    with pytest.raises(TraceError, match=r":1: the line is longer than 16777216 bytes$"):
        read_trace(path)


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", gzip.compress(b"")], ids=["empty", "blank", "gzipped"]
)
def test_a_trace_without_requests_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"trace.jsonl: no request in it$"):
        read_trace(path)


def test_damaged_gzip_data_is_named(path: Path) -> None:
    lines = "".join(json.dumps([i, [[i * i % 977, 5]]]) + "\n" for i in range(5000)).encode()
    whole = gzip.compress(lines)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r":\d+: the gzip data is damaged: .*ended before"):
        read_trace(path)
    path.write_bytes(whole[:10] + b"\xff" * 50)
    with pytest.raises(TraceError, match=r":1: the gzip data is damaged: "):
        read_trace(path)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent: No such file or directory$"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match=r": Is a directory$"):
        read_trace(tmp_path)
