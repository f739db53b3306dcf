"""What comes from outside, in any form: an error in words or the right meaning, nothing else."""

from __future__ import annotations

import gzip
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tieredkv import ObjectKey, TieredStore
from tieredkv.backends.hfbucket.handle import Handle, checked_endpoint
from tieredkv.backends.valkey.addresses import parse_addresses
from tieredkv.cli.trace import TraceError, read_trace
from tieredkv.clients import hub_answers
from tieredkv.clients.hub_failures import HubError
from tieredkv.config import parse_size
from tieredkv.errors import ConfigError, KeyFormatError
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, seal
from tieredkv.keys import key_of, wire_name_of
from tieredkv.results import GetStatus
from tieredkv.testing.strategies import wire_names

CANARY: Final = "canary-5f1e"

_PIECES: Final = st.sampled_from(
    (
        "valkey://",
        "valkeys://",
        "unix://",
        "hf://",
        "buckets/",
        "http://",
        "https://",
        "/",
        "//",
        "..",
        ".",
        ":",
        "@",
        "[",
        "]",
        "%",
        "%2F",
        "%00",
        "%zz",
        "?",
        "#",
        "&",
        "=",
        " ",
        "\n",
        "\0",
        "127.0.0.1",
        "::1",
        "host",
        "6379",
        "99999",
        "-1",
        "0",
        "user",
        "\udc80",
        "é",
        "🎉",
        "\\",
    )
)
_TEXTS: Final = st.lists(_PIECES | st.text(max_size=5), max_size=12).map("".join)
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)

_FILES: Final = st.fixed_dictionaries(
    {"type": st.just("file"), "path": st.text(max_size=5), "xetHash": st.text(max_size=5)},
    optional={"size": st.integers() | _JSON},
)


@given(_TEXTS)
def test_an_address_is_understood_or_refused(text: str) -> None:
    try:
        (address,) = parse_addresses(text)
    except ConfigError:
        return
    assert text.startswith(("valkey://", "valkeys://", "unix://"))
    assert address.tls == text.startswith("valkeys://")


@given(_TEXTS, _TEXTS)
def test_a_refused_address_does_not_show_its_password(before: str, after: str) -> None:
    text = f"valkey://user:{before}{CANARY}@{after}"
    try:
        shown = repr(parse_addresses(text))
    except ConfigError as error:
        shown = f"{error} {error!r} {error.__cause__!r}"
    assert CANARY not in shown


@given(_TEXTS)
def test_a_handle_keeps_its_names_below_its_prefix(text: str) -> None:
    try:
        handle = Handle.parse(text)
    except ConfigError:
        return
    path = handle.path_of("llama@000000ff@0@00010203@user-42")
    assert handle.name_of(path) == "llama@000000ff@0@00010203@user-42"
    assert not path.startswith("/")
    assert ".." not in path.split("/")


@given(_TEXTS)
def test_an_endpoint_is_understood_or_refused(text: str) -> None:
    try:
        endpoint = checked_endpoint(text)
    except ConfigError:
        return
    assert endpoint is None or endpoint.startswith(("http://", "https://"))


@given(_TEXTS)
def test_a_wire_name_stands_for_one_key_or_none(text: str) -> None:
    try:
        key = key_of(text)
    except KeyFormatError:
        return
    assert wire_name_of(key) == text
    assert isinstance(key, ObjectKey | str)


@given(_TEXTS | st.integers() | st.floats())
def test_a_size_is_understood_or_refused(value: Any) -> None:
    try:
        size = parse_size(value, field="capacity")
    except ConfigError:
        return
    assert size >= 0


@given(
    wire_names(), st.binary(max_size=300), st.binary(min_size=TRAILER_BYTES, max_size=TRAILER_BYTES)
)
def test_any_bytes_are_no_value(name: str, payload: bytes, trailer: bytes) -> None:
    for head in (trailer, b"TKV1\x01\x00" + trailer[6:]):
        check = FrameCheck(name, memoryview(payload), memoryview(head))
        assert check.result() in (GetStatus.MISS, GetStatus.CORRUPT)
        bare = SizeCheck(name, memoryview(payload + head))
        assert bare.result() is GetStatus.HIT
        assert bare.payload_bytes == len(payload) + TRAILER_BYTES


@given(wire_names(), wire_names(), st.binary(max_size=300), st.data())
def test_a_frame_is_of_one_name_and_one_size(
    name: str, other: str, payload: bytes, data: st.DataObject
) -> None:
    frame = memoryview(bytearray(payload + bytes(TRAILER_BYTES)))
    seal(frame, name, generation=1)
    if other != name:
        whole = FrameCheck(other, frame[:-TRAILER_BYTES], frame[-TRAILER_BYTES:])
        assert whole.result() is GetStatus.CORRUPT
    cut = data.draw(st.integers(0, len(payload)))
    if cut:
        tail = FrameCheck(name, frame[cut:-TRAILER_BYTES], frame[-TRAILER_BYTES:])
        assert tail.result() is GetStatus.CORRUPT


@given(st.lists(_JSON, max_size=5) | st.binary(max_size=200), st.booleans())
def test_a_trace_is_read_or_its_line_is_named(content: Any, zipped: bool) -> None:  # noqa: FBT001
    raw = content if isinstance(content, bytes) else "\n".join(map(json.dumps, content)).encode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace"
        path.write_bytes(gzip.compress(raw) if zipped else raw)
        try:
            requests = read_trace(path)
        except TraceError as error:
            assert str(path) in str(error)  # noqa: PT017 - or it is read
        else:
            assert requests


@given(st.lists(_FILES, max_size=3) | _JSON)
def test_a_hubs_answer_is_understood_or_an_error_of_the_hub(answer: Any) -> None:
    with suppress(HubError):
        for path, info in hub_answers.files(answer):
            assert isinstance(path, str)
            assert info.size >= 0


@given(_JSON | st.dictionaries(st.sampled_from(("l1", "l2", "integrity", "write_policy")), _JSON))
def test_a_configuration_is_understood_or_refused(source: Any) -> None:
    with suppress(ConfigError, TypeError):
        TieredStore.from_config(source)
