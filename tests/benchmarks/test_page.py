"""The page of the documentation: it shows its results, all of them, and explains each miss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs
import pytest

from benchmarks.page import Page, Reason, Selector, markdown, read_reasons, unexplained
from benchmarks.plots import plot_of, shown_in
from benchmarks.report import Figure, Report, Row
from benchmarks.results import Benchmark, Run, dumps, loads

PAGE = Page()
RESULTS = PAGE.results()
REASONS = read_reasons()
MOST_BYTES = 100_000
REDRAW = "to draw it again: python -m benchmarks.page"


class TestCommitted:
    def test_the_page_is_that_of_its_results_and_reasons(self) -> None:
        is_theirs = PAGE.file.read_text(encoding="utf-8") == markdown(RESULTS, REASONS)
        assert is_theirs, REDRAW

    def test_the_pictures_show_the_results(self) -> None:
        plots = {name: plot_of(benchmark.reports) for name, benchmark in RESULTS.items()}
        expected = {name: plot.digest() for name, plot in plots.items() if plot}
        files = {file.stem: file for file in PAGE.directory.glob("*.svg")}
        assert files.keys() == expected.keys(), REDRAW
        differing = [name for name, file in files.items() if shown_in(file) != expected[name]]
        assert not differing, REDRAW

    def test_the_pictures_tell_every_value(self) -> None:
        for name, benchmark in RESULTS.items():
            if plot := plot_of(benchmark.reports):
                texts = Counter(ET.parse(PAGE.directory / f"{name}.svg").getroot().itertext())
                values = Counter(f"{of.value:.3g}" for panel in plot.panels for of in panel.points)
                assert values <= texts, f"{name}: {REDRAW}"

    def test_no_file_is_large(self) -> None:
        sizes = {file.name: file.stat().st_size for file in PAGE.directory.iterdir()}
        assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}

    def test_every_target_that_is_missed_has_a_reason(self) -> None:
        left = unexplained(RESULTS, REASONS)
        assert [(report.title, figure.name) for report, figure in left] == []

    def test_every_reason_that_is_given_has_its_evidence(self) -> None:
        given = [reason for reason in REASONS if reason.missed(RESULTS)]
        missing = [
            selector for of in given for selector in of.evidence if not list(selector.of(RESULTS))
        ]
        assert all(reason.evidence for reason in given)
        assert missing == []


RUN = Run(
    command="python -m benchmarks peers",
    date="2026-11-30",
    python="CPython 3.11.7",
    system="Linux 6.18 x86_64",
    processor="EPYC",
    cpus=2,
    load=(0.5, 1.25),
    seconds=90.0,
    packages={"redis": "8.1.0"},
)


def benchmark(*reports: Report) -> Benchmark:
    return Benchmark("What it is.", RUN, reports)


MISSED = Figure("ours : theirs", 1.3, spread=(1.1, 1.4), at_most=1.2)
MET = Figure("ours : theirs (speed)", 2.0, spread=(1.9, 2.1), at_least=1.5)
RESULT = {"peers": benchmark(Report("Peer *one*", (), [MISSED]), Report("Peer two", (), [MET]))}
REASON = Reason(
    "Why it is slow",
    misses=(Selector("peers", "Peer *", "ours : *"),),
    evidence=(Selector("peers", "Peer two", "*"),),
    text="Because of the **rename**.",
)


class TestMarkdown:
    def test_every_target_is_in_the_table_with_its_verdict(self) -> None:
        page = markdown(RESULT, [])
        assert "1 of 2 are met." in page
        assert "| ours : theirs | 1.3 x | 1.1 to 1.4 | at most 1.2 | **missed** |" in page
        assert "| ours : theirs (speed) | 2 x | 1.9 to 2.1 | at least 1.5 | met |" in page

    def test_a_miss_is_explained_with_its_evidence(self) -> None:
        page = markdown(RESULT, [REASON])
        assert "### Why it is slow" in page
        assert "Because of the **rename**." in page
        assert "| `python -m benchmarks peers` | Peer two | ours : theirs (speed) | 2 x |" in page

    def test_a_miss_without_a_reason_is_told(self) -> None:
        assert "ours : theirs: the reason is not known yet" in markdown(RESULT, [])
        assert "not known yet" not in markdown(RESULT, [REASON])

    def test_a_reason_for_what_is_met_is_left_out(self) -> None:
        met = attrs.evolve(REASON, misses=(Selector("peers", "Peer two", "*"),))
        assert "Why it is slow" not in markdown(RESULT, [met])

    @pytest.mark.parametrize(("spread", "is_explained"), [((1.1, 1.4), True), ((1.3, 1.4), False)])
    def test_noise_explains_only_what_it_may_have_missed(
        self, *, spread: tuple[float, float], is_explained: bool
    ) -> None:
        noise = attrs.evolve(REASON, is_noise=True)
        missed = attrs.evolve(MISSED, spread=spread)
        results = {"peers": benchmark(Report("Peer one", (), [missed]))}
        assert bool(noise.missed(results)) is is_explained
        assert bool(unexplained(results, [noise])) is not is_explained

    def test_a_benchmark_nobody_has_heard_of_has_its_section(self) -> None:
        page = markdown(RESULT, [])
        assert "### peers\n\nWhat it is.\n" in page
        assert "![Figures of the benchmark peers](benchmarks/peers.svg)" in page
        assert RESULT["peers"].reports[0].table().strip() in page

    def test_the_command_and_the_machine_are_told(self) -> None:
        page = markdown(RESULT, [])
        assert (
            "| `python -m benchmarks peers` | 2026-11-30 | 0.5, 1.2 | 1.5 | 2 cores of EPYC" in page
        )
        assert "With redis 8.1.0." in page


class TestPictures:
    def test_sizes_of_one_panel_share_their_series(self) -> None:
        reports = [
            Report(
                f"Reads of {size}",
                (),
                [Figure(f"size : bare {by} (speed)", 0.9, at_least=1), Figure("lag", 3, "ms")],
                panel="reads",
                label=size,
            )
            for size, by in (("1 KiB", "get"), ("1 MiB", "mget"))
        ]
        plot = plot_of(reports)
        assert plot is not None
        (panel,) = plot.panels
        assert (panel.title, panel.axis.endswith("more is better")) == ("reads", True)
        assert [(point.label, point.series) for point in panel.points] == [
            ("1 KiB", "size"),
            ("1 MiB", "size"),
        ]
        assert [(point.target, point.is_met) for point in panel.points] == [(1, False)] * 2

    def test_without_a_panel_all_ratios_are_shown_under_their_titles(self) -> None:
        plot = plot_of(RESULT["peers"].reports)
        assert plot is not None
        shown = [(point.label, point.value) for panel in plot.panels for point in panel.points]
        assert shown == [("Peer *one*", 1.3), ("Peer two", 2.0)]

    def test_what_has_no_ratio_has_no_picture(self) -> None:
        assert plot_of([Report("Bookkeeping", (), [Figure("bytes a key", 400, "B")])]) is None


class TestResults:
    def test_they_come_back_from_their_file(self) -> None:
        row = Row("ours", 1e-6, 2e-6, 1e-6, 4096, 0, None, None, None)
        results = loads(dumps({"peers": benchmark(Report("One", [row], [MISSED, MET], "p", "l"))}))
        assert results["peers"].reports == (Report("One", [row], [MISSED, MET], "p", "l"),)
        assert loads(dumps(results)) == results

    def test_numbers_have_five_digits(self) -> None:
        report = Report("One", (), [Figure("a", 1.23456789, spread=(1 / 3, 123456.7))])
        figure = loads(dumps({"peers": benchmark(report)}))["peers"].reports[0].figures[0]
        assert (figure.value, figure.spread) == (1.2346, (0.33333, 123460))

    def test_newer_ones_replace_those_of_the_same_benchmark_only(self, tmp_path: Path) -> None:
        page = Page(tmp_path)
        page.update({"l1": benchmark(Report("Old")), "disk": benchmark(Report("Kept"))})
        page.update({"l1": benchmark(Report("New"))})
        titles = {name: of.reports[0].title for name, of in page.results().items()}
        assert titles == {"l1": "New", "disk": "Kept"}
