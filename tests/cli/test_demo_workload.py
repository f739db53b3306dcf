"""The built-in chat: seeded, in order, and as real chats reuse."""

from __future__ import annotations

from itertools import islice, pairwise
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.cli.workload import Request, chat, distinct_chunks

SEEDS = (0, 1, 2)
runs = st.builds(
    lambda first, length: range(first, first + length), st.integers(0, 50), st.integers(1, 9)
)


def requests(seed: int, count: int = 5000) -> list[Request]:
    return list(islice(chat(seed), count))


def test_the_same_seed_gives_the_same_requests_and_another_one_others() -> None:
    assert requests(3, 50) == requests(3, 50) != requests(4, 50)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_come_in_order_of_arrival(seed: int) -> None:
    assert all(a.time_s <= b.time_s for a, b in pairwise(requests(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_chunks_recur_as_in_real_chats(seed: int) -> None:
    uses: dict[int, list[float]] = {}
    for request in requests(seed):
        for chunk in request.chunks:
            uses.setdefault(chunk, []).append(request.time_s)
    recurring = sum(len(times) > 1 for times in uses.values()) / len(uses)
    gaps = [later - earlier for times in uses.values() for earlier, later in pairwise(times)]
    assert recurring == pytest.approx(0.27, abs=0.03)
    assert median(gaps) == pytest.approx(120, abs=15)
    assert fmean(len(request.chunks) for request in requests(seed)) == pytest.approx(24, abs=1.5)


def test_an_id_stands_for_a_chunk_and_all_before_it() -> None:
    before: dict[int, int | None] = {}
    for request in requests(0):
        for earlier, chunk in zip([None, *request.chunks], request.chunks, strict=False):
            assert before.setdefault(chunk, earlier) == earlier


@given(st.lists(st.lists(runs, min_size=1), max_size=8))
def test_distinct_chunks_are_counted_once(chains: list[list[range]]) -> None:
    several = [Request(0.0, tuple(chain)) for chain in chains]
    assert distinct_chunks(several) == len({c for request in several for c in request.chunks})
