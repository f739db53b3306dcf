"""Events, histograms and counters."""

from __future__ import annotations

import logging
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.observe import CacheEvent, Counts, Histogram, Listeners

durations = st.floats(min_value=1e-9, max_value=1e6)


class TestListeners:
    def test_hear_of_events_in_order_until_they_cancel(self) -> None:
        listeners = Listeners()
        heard: list[str] = []
        first = listeners.subscribe(lambda event: heard.append(f"first {event.kind}"))
        listeners.subscribe(lambda event: heard.append(f"second {event.kind}"))
        listeners.emit("stored", "l1", ["a"], [1])
        first.cancel()
        first.cancel()
        listeners.emit("evicted", "l1", ["a"], [1])
        assert heard == ["first stored", "second stored", "second evicted"]

    def test_get_tier_names_and_sizes(self) -> None:
        listeners = Listeners()
        heard: list[CacheEvent] = []
        listeners.subscribe(heard.append)
        listeners.emit("deleted", "disk", ("a", "b"), (1, 2))
        assert heard == [CacheEvent("deleted", "disk", ("a", "b"), (1, 2))]

    def test_one_that_raises_harms_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        listeners = Listeners()
        heard: list[CacheEvent] = []

        def fails(event: CacheEvent) -> None:
            raise LookupError("mine")

        listeners.subscribe(fails)
        listeners.subscribe(heard.append)
        with caplog.at_level(logging.ERROR, "tieredkv.observe"):
            listeners.emit("stored", "l1", ["a"], [1])
        assert len(heard) == 1
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[0] is LookupError

    def test_may_subscribe_and_cancel_while_they_listen(self) -> None:
        listeners = Listeners()
        heard: list[str] = []

        def once(event: CacheEvent) -> None:
            heard.append("once")
            subscription.cancel()
            listeners.subscribe(lambda event: heard.append("late"))

        subscription = listeners.subscribe(once)
        listeners.emit("stored", "l1", ["a"], [1])
        listeners.emit("stored", "l1", ["a"], [1])
        assert heard == ["once", "late"]

    def test_the_same_function_twice_hears_twice(self) -> None:
        listeners = Listeners()
        heard: list[CacheEvent] = []
        first, _ = listeners.subscribe(heard.append), listeners.subscribe(heard.append)
        listeners.emit("stored", "l1", ["a"], [1])
        first.cancel()
        listeners.emit("stored", "l1", ["a"], [1])
        assert len(heard) == 3

    def test_nothing_happened_is_no_event(self) -> None:
        listeners = Listeners()
        assert not listeners.registered
        heard: list[CacheEvent] = []
        listeners.subscribe(heard.append)
        assert listeners.registered
        listeners.emit("evicted", "l1", [], [])
        assert heard == []

    def test_events_are_well_formed(self) -> None:
        with pytest.raises(ValueError, match="1 names and 2 sizes"):
            CacheEvent("stored", "l1", ["a"], [1, 2])
        with pytest.raises(ValueError, match="name of its tier"):
            CacheEvent("stored", "", ["a"], [1])


class TestHistogram:
    @given(st.lists(durations, min_size=1, max_size=300), st.floats(0.01, 1))
    def test_quantiles_are_off_by_3_2_percent_at_most(
        self, recorded: list[float], fraction: float
    ) -> None:
        histogram = Histogram()
        for duration in recorded:
            histogram.record(duration)
        exact = sorted(recorded)[math.ceil(fraction * len(recorded)) - 1]
        assert histogram.quantile(fraction) == pytest.approx(exact, rel=0.032)

    @given(st.lists(st.tuples(durations, st.integers(1, 50)), min_size=1, max_size=50))
    def test_count_and_total(self, recorded: list[tuple[float, int]]) -> None:
        histogram, one_by_one = Histogram(), Histogram()
        for duration, times in recorded:
            histogram.record(duration, times)
            for _ in range(times):
                one_by_one.record(duration)
        assert histogram.count == sum(times for _, times in recorded)
        assert histogram.total_s == pytest.approx(math.fsum(d * n for d, n in recorded))
        for fraction in (0.01, 0.5, 0.99, 1.0):
            assert histogram.quantile(fraction) == one_by_one.quantile(fraction)

    def test_an_empty_one_says_zero(self) -> None:
        assert Histogram().quantile(0.5) == 0.0

    def test_a_clock_that_stood_still(self) -> None:
        histogram = Histogram()
        histogram.record(0.0)
        assert 0 < histogram.quantile(0.5) <= 1.1e-9

    def test_stays_small_over_nine_decades(self) -> None:
        histogram = Histogram()
        for exponent in range(9000):
            histogram.record(1e-9 * 10 ** (exponent / 1000))
        assert len(histogram._buckets) <= 16 * (math.log2(1e9) + 2)

    def test_median_of_a_known_set(self) -> None:
        histogram = Histogram()
        recorded = [0.001 * n for n in range(1, 102)]
        for duration in recorded:
            histogram.record(duration)
        assert histogram.quantile(0.5) == pytest.approx(statistics.median(recorded), rel=0.032)

    def test_several_make_one(self) -> None:
        parts = [Histogram(), Histogram()]
        for n in range(1, 102):
            parts[n % 2].record(0.001 * n)
        merged = Histogram.merged(parts)
        assert (merged.count, merged.quantile(0.5)) == (101, pytest.approx(0.051, rel=0.032))
        assert merged.total_s == pytest.approx(sum(0.001 * n for n in range(1, 102)))
        assert [part.count for part in parts] == [50, 51]

    def test_a_copy_is_detached(self) -> None:
        histogram = Histogram()
        histogram.record(1.0)
        twin = histogram.copy()
        histogram.record(100.0, 5)
        assert (twin.count, twin.total_s) == (1, 1.0)
        assert twin.quantile(1.0) == pytest.approx(1.0, rel=0.032)


class TestCounts:
    def test_keys_bytes_and_latencies(self) -> None:
        counts = Counts()
        counts.count("read", "hit", 100)
        counts.count("read", "hit", 50, times=2)
        counts.count("read", "miss")
        counts.count("write", "stored", 7)
        counts.time("read", "hit", 0.5, 3)
        counts.time("read", "hit", 1.0)
        assert counts.outcomes == {
            ("read", "hit"): 3,
            ("read", "miss"): 1,
            ("write", "stored"): 1,
        }
        assert counts.nbytes == {"read": 150, "write": 7}
        assert counts.latency["read", "hit"].count == 4
        assert counts.latency["read", "hit"].total_s == 2.5
