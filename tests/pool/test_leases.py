"""Leases: what a reader holds, how it ends, and who hears of one that does not."""

from __future__ import annotations

import copy
import ctypes
import gc
import itertools
import logging
import pickle
import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from tieredkv.errors import LeaseReleasedError, OutOfMemoryError
from tieredkv.pool import lease as lease_module
from tieredkv.pool.arena import Arena
from tieredkv.pool.lease import GetResult, GetResults, LeaseBook, MemoryObject
from tieredkv.results import GetStatus

PAGE = 4096
PAYLOAD = bytes(range(200))


class Pool:
    """An arena whose values have no user but their leases."""

    def __init__(self, warn_s: float = 60.0) -> None:
        self.arena = Arena(8 * PAGE, alignment_bytes=PAGE, overflow_bytes=0, room_bytes=64)
        self.book = LeaseBook(warn_s)

    def lease(self, payload: bytes = PAYLOAD, key: str = "key", tier: str = "disk") -> MemoryObject:
        entry = self.arena.allocate(key, len(payload))
        assert entry is not None
        with self.arena.writable(entry) as memory:
            memory[: len(payload)] = payload
        return MemoryObject(entry, self.arena, self.book, key, tier)

    @property
    def used_blocks(self) -> int:
        self.arena.drain()
        return self.arena.used_bytes // PAGE


@pytest.fixture
def pool() -> Pool:
    return Pool()


class TestWhileItLasts:
    def test_it_shows_the_value(self, pool: Pool) -> None:
        with pool.lease() as lease:
            assert lease.view == PAYLOAD
            assert bytes(lease) == PAYLOAD
            assert len(lease) == lease.nbytes == 200
            assert (lease.key, lease.tier) == ("key", "disk")

    def test_its_address_is_that_of_the_first_byte(self, pool: Pool) -> None:
        with pool.lease() as lease:
            assert ctypes.string_at(lease.address, 200) == PAYLOAD
            array = np.frombuffer(lease.view, np.uint8)
            assert array.ctypes.data == lease.address

    def test_views_are_independent(self, pool: Pool) -> None:
        with pool.lease() as lease:
            with lease.view as first:
                pass
            with pytest.raises(ValueError, match="released"):
                first[0]
            assert lease.view == PAYLOAD

    def test_an_empty_value(self, pool: Pool) -> None:
        with pool.lease(b"") as lease:
            assert lease.view.nbytes == len(lease) == 0
            assert bytes(lease) == b""
            assert lease.address > 0

    def test_repr_tells_key_size_and_tier_but_no_bytes(self, pool: Pool) -> None:
        lease = pool.lease(b"secret")
        assert repr(lease) == "<MemoryObject 'key': 6 bytes from disk>"
        lease.release()
        assert repr(lease) == "<MemoryObject 'key': released>"


class TestEnd:
    def test_release_gives_the_memory_back(self, pool: Pool) -> None:
        lease = pool.lease()
        assert (pool.used_blocks, len(pool.book)) == (1, 1)
        lease.release()
        assert (pool.used_blocks, len(pool.book)) == (0, 0)

    def test_a_second_release_is_an_error_and_frees_nothing_twice(self, pool: Pool) -> None:
        lease = pool.lease()
        lease.release()
        other = pool.lease(b"other")
        with pytest.raises(LeaseReleasedError, match="'key' has been released"):
            lease.release()
        assert bytes(other) == b"other"
        assert pool.used_blocks == 1
        other.release()
        assert pool.used_blocks == 0

    def test_nothing_can_be_read_after_it(self, pool: Pool) -> None:
        lease = pool.lease()
        lease.release()
        for use in (
            lambda: lease.view,
            lambda: lease.address,
            lambda: bytes(lease),
        ):
            with pytest.raises(LeaseReleasedError):
                use()
        assert len(lease) == 200  # as a fact about the value, not about memory

    def test_leaving_with_after_an_explicit_release_is_fine(self, pool: Pool) -> None:
        with pool.lease() as lease:
            lease.release()
        assert pool.used_blocks == 0

    def test_leaving_with_by_an_exception_releases(self, pool: Pool) -> None:
        with pytest.raises(LookupError, match="mine"), pool.lease():
            raise LookupError("mine")
        assert pool.used_blocks == 0

    def test_release_does_not_mind_live_views(self, pool: Pool) -> None:
        lease = pool.lease()
        view = lease.view
        lease.release()
        assert view == PAYLOAD
        assert pool.used_blocks == 1
        assert pool.arena.held_blocks == 1
        del view
        assert pool.used_blocks == 0
        assert pool.arena.held_blocks == 0

    @pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_a_lease_has_no_twin(self, pool: Pool, twin: object) -> None:
        with pool.lease() as lease, pytest.raises(TypeError, match=r"bytes\(lease\)"):
            twin(lease)  # type: ignore[operator]
        assert pool.used_blocks == 0


class TestForgotten:
    def test_a_dropped_lease_is_reclaimed_with_a_warning(self, pool: Pool) -> None:
        lease = pool.lease()
        with pytest.warns(ResourceWarning, match=r"lease of 'key' \(200 bytes\) was never rel"):
            del lease
        assert (pool.used_blocks, len(pool.book)) == (0, 0)

    def test_the_warning_leads_to_the_line_that_took_it(self, pool: Pool) -> None:
        tracemalloc.start()
        try:
            lease = pool.lease()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                del lease
            (warning,) = caught
            assert isinstance(warning.source, MemoryObject)
            assert tracemalloc.get_object_traceback(warning.source) is not None
            del warning, caught
        finally:
            tracemalloc.stop()
        gc.collect()
        assert pool.used_blocks == 0

    def test_a_released_one_is_silent(self, pool: Pool) -> None:
        lease = pool.lease()
        lease.release()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del lease

    def test_views_outlive_it(self, pool: Pool) -> None:
        lease = pool.lease()
        array = np.frombuffer(lease.view, np.uint8)[::2]
        with pytest.warns(ResourceWarning):
            del lease
        gc.collect()
        assert pool.used_blocks == 1
        assert array.tobytes() == PAYLOAD[::2]
        del array
        assert pool.used_blocks == 0

    @pytest.mark.parametrize("viewed", [False, True])
    def test_in_a_cycle_of_garbage(self, pool: Pool, viewed: bool) -> None:  # noqa: FBT001 - a parameter of the test
        def forget() -> None:
            lease = pool.lease()
            cycle: list[object] = [lease]
            cycle.append(cycle)
            if viewed:
                cycle.append(lease.view)
            del lease, cycle
            gc.collect()

        with pytest.warns(ResourceWarning):
            forget()
        assert (pool.used_blocks, pool.arena.held_blocks, len(pool.book)) == (0, 0, 0)


class TestHeldTooLong:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """Hold the time in its one element."""
        now = [1000.0]
        monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        return now

    def test_is_told_once_with_key_size_and_age(
        self, now: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = Pool(warn_s=10)
        lease = pool.lease()
        with caplog.at_level(logging.WARNING, "tieredkv.pool.lease"):
            for _ in range(100):
                now[0] += 1
                pool.book.look()
        (record,) = caplog.records
        message = record.getMessage()
        assert "'key'" in message
        assert "200 bytes" in message
        assert "10 s" in message
        assert len(pool.book) == 1, "it is still out"
        lease.release()
        assert len(pool.book) == 0

    def test_is_not_told_before_its_time(
        self, now: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = Pool(warn_s=10)
        for start in range(50):  # at every place between two looks
            now[0] += start * 0.7
            pool.book.look()
            lease = pool.lease()
            taken = now[0]
            while now[0] - taken < 9.5:
                now[0] += 0.7
                if now[0] - taken < 10:
                    pool.book.look()
            lease.release()
        assert caplog.records == []

    def test_is_told_within_twice_that_time_where_somebody_looks(
        self, now: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = Pool(warn_s=10)
        pool.book.look()
        leases = [pool.lease(key=f"key {n}") for n in range(3)]
        for _ in range(20):
            now[0] += 1
            pool.book.look()
        assert sorted(record.getMessage().split("'")[1] for record in caplog.records) == [
            "key 0",
            "key 1",
            "key 2",
        ]
        for lease in leases:
            lease.release()

    def test_leases_may_end_in_other_threads_while_they_are_told_of(
        self, now: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = Pool(warn_s=10)
        leases = [pool.lease(key=f"key {n}") for n in range(5)]
        now[0] += 11
        pool.book.look()

        def end_one(*_: object) -> None:
            leases.pop().release()

        monkeypatch.setattr(lease_module._log, "warning", end_one)
        now[0] += 11
        pool.book.look()
        assert leases == []
        assert len(pool.book) == 0
        assert pool.used_blocks == 0

    def test_a_lease_that_ends_in_time_is_never_told(
        self, now: list[float], caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = Pool(warn_s=10)
        for _ in range(100):
            with pool.lease():
                now[0] += 9
                pool.book.look()
        assert caplog.records == []
        assert len(pool.book) == 0


class TestBatches:
    def results(self, pool: Pool) -> GetResults:
        return GetResults(
            [
                GetResult("a", GetStatus.HIT, pool.lease(b"one", "a"), "disk"),
                GetResult("b", GetStatus.MISS),
                GetResult("c", GetStatus.HIT, pool.lease(b"three", "c"), "l1"),
                GetResult("d", GetStatus.REJECTED, None, "l1", OutOfMemoryError(5)),
            ]
        )

    def test_are_sequences(self, pool: Pool) -> None:
        with self.results(pool) as results:
            assert len(results) == 4
            assert [result.key for result in results] == ["a", "b", "c", "d"]
            assert results[-1].status is GetStatus.REJECTED
            assert [result.key for result in results[1:3]] == ["b", "c"]
            assert results[0] in results
            with pytest.raises(IndexError):
                results[4]

    def test_leaving_with_releases_every_lease(self, pool: Pool) -> None:
        with self.results(pool) as results:
            assert pool.used_blocks == 2
            lease = results[0].object
            assert lease is not None
            assert lease.view == b"one"
        assert pool.used_blocks == 0
        assert len(pool.book) == 0

    def test_one_may_be_released_before(self, pool: Pool) -> None:
        with self.results(pool) as results:
            lease = results[0].object
            assert lease is not None
            lease.release()
            assert pool.used_blocks == 1
        results.release()
        assert pool.used_blocks == 0

    def test_an_exception_inside_releases_too(self, pool: Pool) -> None:
        with pytest.raises(LookupError, match="mine"), self.results(pool):
            raise LookupError("mine")
        assert pool.used_blocks == 0

    def test_repr_shows_status_and_tier(self, pool: Pool) -> None:
        with self.results(pool) as results:
            shown = [repr(result) for result in results]
        assert shown == [
            "<GetResult 'a': hit from disk>",
            "<GetResult 'b': miss>",
            "<GetResult 'c': hit from l1>",
            "<GetResult 'd': rejected from l1>",
        ]


def test_ids_that_come_again_are_not_mixed_up() -> None:
    pool = Pool()
    seen: set[int] = set()
    for turn in itertools.count():
        lease = pool.lease()
        again = id(lease) in seen
        seen.add(id(lease))
        assert len(pool.book) == 1
        lease.release()
        assert len(pool.book) == 0
        if again:
            break
        assert turn < 1000
        del lease


def test_all_leases_are_counted_however_old_they_are() -> None:
    pool = Pool(warn_s=0.0)
    leases = []
    for count in range(1, 5):
        leases.append(pool.lease())
        pool.book.look()
        assert len(pool.book) == count
    GetResults(GetResult("key", GetStatus.HIT, lease) for lease in leases).release()
    assert len(pool.book) == 0
