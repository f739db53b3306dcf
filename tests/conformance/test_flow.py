"""When a store writes to a backend and lets its values rise is said where the backend is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tieredkv.backends import Backend, DiskBackend, HFBucketBackend, ValkeyBackend
from tieredkv.errors import ConfigError
from tieredkv.testing.faults import FaultyBackend
from tieredkv.testing.memory import MemoryBackend

_MAKERS: dict[str, Callable[..., Backend]] = {
    "disk": partial(DiskBackend, "values"),
    "valkey": partial(ValkeyBackend, "valkey://127.0.0.1"),
    "hfbucket": partial(HFBucketBackend, "hf://buckets/org/kv/prod"),
    "memory": MemoryBackend,
}


@pytest.fixture(params=_MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Backend]:
    return _MAKERS[request.param]


def test_a_backend_is_written_with_each_put_and_its_values_rise(
    make: Callable[..., Backend],
) -> None:
    assert (make().write_on, make().promotion) == ("put", "always")


def test_both_can_be_chosen_and_a_wrapper_keeps_them(make: Callable[..., Backend]) -> None:
    backend = make(write_on="evict", promotion="second_hit")
    for each in (backend, FaultyBackend(backend)):
        assert (each.write_on, each.promotion) == ("evict", "second_hit")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"write_on": "evicted"}, r"write_on='evicted' must be .*\(did you mean 'evict'\?\)"),
        ({"promotion": True}, "promotion=True must be one of 'always', 'second_hit', 'never'"),
    ],
)
def test_a_wrong_choice_is_refused_by_name(
    make: Callable[..., Backend], setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**setting)
