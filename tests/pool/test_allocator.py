"""The allocator, against a set of intervals that knows nothing of classes and tags."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tieredkv.pool.allocator import Allocator, _class_of


class AllocatorMachine(RuleBasedStateMachine):
    """Blocks are intervals; the free extents are what lies between them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, int] = {}  # first page → pages

    @initialize(num_pages=st.one_of(st.integers(1, 40), st.integers(41, 2000)))
    def begin(self, num_pages: int) -> None:
        self.allocator = Allocator(num_pages)
        self.num_pages = num_pages

    def gaps(self) -> list[tuple[int, int]]:
        gaps = []
        at = 0
        for first in sorted(self.blocks):
            if first > at:
                gaps.append((at, first - at))
            at = first + self.blocks[first]
        if at < self.num_pages:
            gaps.append((at, self.num_pages - at))
        return gaps

    @rule(pages=st.one_of(st.integers(1, 5), st.integers(1, 40), st.integers(1, 2100)))
    def allocate(self, pages: int) -> None:
        gaps = self.gaps()
        first = self.allocator.allocate(pages)
        if first is None:
            # Only gaps within 1/16 of a power of two above the request may be overlooked.
            slack = 0 if pages < 32 else 1 << (pages.bit_length() - 5)
            assert all(gap < pages + max(slack, 1) for _, gap in gaps)
            assert slack or all(gap < pages for _, gap in gaps)
            return
        assert any(at <= first and first + pages <= at + gap for at, gap in gaps)
        self.blocks[first] = pages

    @precondition(lambda self: self.blocks)
    @rule(pick=st.integers(0, 2**16))
    def free(self, pick: int) -> None:
        first = list(self.blocks)[pick % len(self.blocks)]
        self.allocator.free(first, self.blocks.pop(first))

    @rule(first=st.integers(-3, 2100), pages=st.integers(-3, 40))
    def free_what_is_not_out(self, first: int, pages: int) -> None:
        if self.blocks.get(first) != pages:
            with pytest.raises(ValueError, match="no block of"):
                self.allocator.free(first, pages)

    @precondition(lambda self: self.blocks)
    @rule(pick=st.integers(0, 2**16), shift=st.integers(-2, 2), stretch=st.integers(-2, 2))
    def free_nearly_a_block(self, pick: int, shift: int, stretch: int) -> None:
        first = list(self.blocks)[pick % len(self.blocks)]
        self.free_what_is_not_out(first + shift, self.blocks[first] + stretch)

    @precondition(lambda self: self.blocks)
    @rule(pick=st.integers(0, 2**16))
    def free_twice(self, pick: int) -> None:
        first = list(self.blocks)[pick % len(self.blocks)]
        pages = self.blocks.pop(first)
        self.allocator.free(first, pages)
        with pytest.raises(ValueError, match="no block of"):
            self.allocator.free(first, pages)

    @invariant()
    def free_pages_are_those_in_no_block(self) -> None:
        assert self.allocator.free_pages == self.num_pages - sum(self.blocks.values())

    @rule()
    def free_extents_are_the_gaps_merged(self) -> None:
        assert self.allocator.extents() == self.gaps()
        tags = [0] * self.num_pages
        for first, pages in self.blocks.items():
            tags[first] = pages
        for first, pages in self.gaps():
            tags[first] = tags[first + pages - 1] = -pages
        assert self.allocator._tags.tolist() == tags

    def teardown(self) -> None:
        for first, pages in self.blocks.items():
            self.allocator.free(first, pages)
        assert self.allocator.extents() == [(0, self.num_pages)]
        assert self.allocator.free_pages == self.num_pages


TestAllocatorMachine = pytest.mark.stateful(AllocatorMachine.TestCase)


@pytest.mark.parametrize("num_pages", [0, -1, 2**31])
def test_a_number_of_pages_that_cannot_be(num_pages: int) -> None:
    with pytest.raises(ValueError, match="num_pages"):
        Allocator(num_pages)


@pytest.mark.parametrize("pages", [1, 2, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025])
def test_every_page_can_be_used(pages: int) -> None:
    allocator = Allocator(pages * 7)
    firsts = {allocator.allocate(pages) for _ in range(7)}
    assert firsts == {pages * place for place in range(7)}
    assert allocator.allocate(1) is None
    assert allocator.free_pages == 0


def test_more_than_there_is() -> None:
    allocator = Allocator(100)
    assert allocator.allocate(101) is None
    assert allocator.allocate(2**40) is None
    assert allocator.allocate(100) == 0


def test_two_neighbours_are_not_one_block_between_them() -> None:
    allocator = Allocator(4)
    assert (allocator.allocate(2), allocator.allocate(2)) == (0, 2)
    with pytest.raises(ValueError, match="no block of 2 pages at page 1"):
        allocator.free(1, 2)
    assert allocator.free_pages == 0


@pytest.mark.parametrize("pages", [17, 257, 1025, 2561])
def test_a_pool_of_one_size_stays_full(pages: int) -> None:
    chance = random.Random(pages)
    allocator = Allocator(pages * 400 + pages // 2)
    blocks: list[int] = []
    while (first := allocator.allocate(pages)) is not None:
        blocks.append(first)
    full = len(blocks)
    assert full == 400
    for _ in range(30_000):
        place = chance.randrange(len(blocks))
        allocator.free(blocks[place], pages)
        first = allocator.allocate(pages)
        if first is None:
            blocks.pop(place)
        else:
            blocks[place] = first
    assert len(blocks) >= 0.99 * full


def test_mixed_sizes_never_fail_below_90_percent_fill() -> None:
    chance = random.Random(1)
    num_pages = 2**20  # 4 GiB of 4 KiB
    allocator = Allocator(num_pages)
    blocks: list[tuple[int, int]] = []
    for _ in range(20_000):
        pages = chance.choice([16, 32, 64, 128, 256, 512, 1024, 2048, 4096]) + 1  # and a trailer
        while num_pages - allocator.free_pages + pages > 0.9 * num_pages:
            place = chance.randrange(len(blocks))
            blocks[place], blocks[-1] = blocks[-1], blocks[place]
            allocator.free(*blocks.pop())
        first = allocator.allocate(pages)
        assert first is not None
        blocks.append((first, pages))


def test_a_block_merges_with_the_last_page() -> None:
    allocator = Allocator(4)
    assert allocator.allocate(3) == 0
    allocator.free(0, 3)
    assert allocator.extents() == [(0, 4)]


@pytest.mark.parametrize("power", [16, 32, 1024])
def test_there_are_16_classes_to_each_power_of_two(power: int) -> None:
    assert len({_class_of(pages) for pages in range(power, 2 * power)}) == 16
    assert _class_of(power) == _class_of(power - 1) + 1


def test_blocks_of_one_size_are_used_again_as_they_are() -> None:
    allocator = Allocator(12)
    firsts = [allocator.allocate(4) for _ in range(3)]
    for first in (0, 4):
        allocator.free(first, 4)
    assert firsts == [0, 4, 8]
    assert (allocator.allocate(4), allocator.allocate(4), allocator.allocate(4)) == (4, 0, None)


def test_another_size_merges_them_first() -> None:
    allocator = Allocator(12)
    for _ in range(3):
        allocator.allocate(4)
    for first in (0, 4, 8):
        allocator.free(first, 4)
    assert allocator.allocate(12) == 0


def test_blocks_of_two_sizes_are_not_mistaken_for_each_other() -> None:
    allocator = Allocator(8)
    assert [allocator.allocate(pages) for pages in (1, 3, 4)] == [0, 1, 4]
    allocator.free(0, 1)
    allocator.free(1, 3)
    assert (allocator.allocate(3), allocator.allocate(3), allocator.allocate(1)) == (1, None, 0)


def test_however_many_blocks_are_freed_all_of_them_can_be_used() -> None:
    allocator = Allocator(1000)
    for first in range(1000):
        assert allocator.allocate(1) == first
    for first in range(1000):
        allocator.free(first, 1)
    assert allocator.allocate(1000) == 0
