"""What is said of limits and expiry that do not go together."""

from __future__ import annotations

import pytest

from tieredkv.backends.valkey.figures import advice, figures


@pytest.mark.parametrize(
    ("maxmemory", "policy", "capacity", "ttl", "beginnings"),
    [
        ("0", "noeviction", False, False, []),
        ("0", "allkeys-lru", True, False, []),  # without a limit nobody evicts
        ("100", "allkeys-lfu", False, True, []),
        ("100", "noeviction", True, False, []),
        ("100", "noeviction", False, True, ["the server refuses writes when it is full"]),
        ("100", "allkeys-lfu", True, False, ["two parties evict"]),
        ("0", "noeviction", True, True, ["ttl_s= expires values"]),
        ("100", "volatile-lru", True, True, ["two parties evict", "ttl_s= expires values"]),
    ],
)
def test_one_party_should_evict(
    maxmemory: str,
    policy: str,
    capacity: bool,  # noqa: FBT001
    ttl: bool,  # noqa: FBT001
    beginnings: list[str],
) -> None:
    node = {"maxmemory": maxmemory, "maxmemory_policy": policy}
    said = list(advice({"": node}, capacity=capacity, ttl=ttl))
    assert len(said) == len(beginnings)
    assert all(text.startswith(start) for text, start in zip(said, beginnings, strict=True))


def test_a_node_that_says_nothing_has_no_figures() -> None:
    told = figures({"a:1": {}, "b:2": {"role": "slave", "used_memory": "7"}})
    assert told["node_memory"] == {
        "a:1": {"used_memory": 0, "maxmemory": 0},
        "b:2": {"used_memory": 7, "maxmemory": 0},
    }
    assert told["used_memory_bytes"] == 0
