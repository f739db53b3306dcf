"""What a soak remembers: every version that a read may bring, and few others."""

from __future__ import annotations

import random

import pytest

from benchmarks.history import History


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr("benchmarks.history._REMEMBERED", 20)
    monkeypatch.setattr("benchmarks.history._SIZES", (16,))
    return History()


def put(history: History, key: str, times: int = 1) -> bytes:
    """Put some versions, one after the other; return the last."""
    value = b""
    for _ in range(times):
        value, version = history.new_value(key, random.Random())
        history.changed(key, version)
    return value


def remembered(history: History) -> int:
    return sum(len(versions) for versions in history._versions.values())


def test_what_no_read_can_bring_is_forgotten(history: History) -> None:
    for key in ("one", "two", "three"):
        put(history, key, 1000)
    assert remembered(history) < 30


def test_the_last_version_is_remembered_however_old(history: History) -> None:
    value = put(history, "old", 5)
    put(history, "other", 1000)
    history.verify("old", bytearray(value), history.oldest("old"), "l1")
    assert not history.wrong


def test_a_read_that_began_before_may_bring_an_older_version(history: History) -> None:
    value = put(history, "key")
    oldest = history.oldest("key")
    put(history, "key", 5)
    history.verify("key", bytearray(value), oldest, "l1")
    assert not history.wrong


def test_an_older_version_is_wrong_remembered_or_not(history: History) -> None:
    value = put(history, "key")
    for others in (1, 1000):
        put(history, "key", others)
        history.verify("key", bytearray(value), history.oldest("key"), "disk")
    after, forgotten = history.wrong
    assert after == "key: disk has version 1 after 2"
    assert "nobody put" in forgotten
