"""What is believed of files, and for how long."""

from __future__ import annotations

import pytest

from tieredkv.backends.hfbucket import metadata
from tieredkv.backends.hfbucket.metadata import MetadataCache
from tieredkv.clients.hub_answers import FileInfo

FILE = FileInfo("a" * 64, 5)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_file_is_believed_for_its_time_and_an_absence_for_two_seconds(clock: Clock) -> None:
    cache = MetadataCache(30, clock=clock)
    cache.learn("there", FILE, asked=cache.now)
    cache.learn("absent", None, asked=cache.now)
    for now_s, there, absent in [(1.9, (FILE,), (None,)), (2, (FILE,), None), (30, None, None)]:
        clock.now_s = now_s
        assert (cache.find("there"), cache.find("absent")) == (there, absent)


def test_a_shorter_time_counts_for_absences_too(clock: Clock) -> None:
    cache = MetadataCache(1, clock=clock)
    cache.learn("absent", None, asked=cache.now)
    clock.now_s = 1
    assert cache.find("absent") is None


def test_with_no_time_nothing_is_believed(clock: Clock) -> None:
    cache = MetadataCache(0, clock=clock)
    cache.learn("there", FILE, asked=cache.now)
    cache.change("written", FILE)
    assert cache.find("there") is None
    assert cache.find("written") is None


def test_an_answer_does_not_replace_what_this_process_has_done_since(clock: Clock) -> None:
    cache = MetadataCache(30, clock=clock)
    asked = cache.now
    cache.change("path", FILE)
    cache.learn("path", None, asked=asked)
    assert cache.find("path") == (FILE,)
    cache.learn("path", None, asked=cache.now)
    assert cache.find("path") == (None,)


def test_the_oldest_of_too_many_go(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(metadata, "MAX_ENTRIES", 100)
    cache = MetadataCache(30, clock=clock)
    for number in range(250):
        cache.learn(f"{number}", FILE, asked=cache.now)
    assert len(cache) == 100
    assert cache.find("149") is None
    assert cache.find("150") == (FILE,)
