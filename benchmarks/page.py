"""``python -m benchmarks.page [FILE ...]``: draw the page of the documentation again.

The page shows the results that lie beside it, a file for each benchmark, and explains the targets
that are missed with the texts of ``benchmarks/reasons.toml``. Before that, results of the FILEs, as
``--json`` of the benchmarks writes them, replace those of the same benchmarks.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import attrs

from benchmarks.plots import draw, plot_of, shown_in
from benchmarks.report import Figure, Report
from benchmarks.results import Benchmark, Results, dumps, loads

__all__ = ["Page", "Reason", "Selector", "markdown", "read_reasons", "unexplained"]

REASONS: Final = Path(__file__).with_name("reasons.toml")
DOCS: Final = Path(__file__).parents[1] / "docs"
_INTRODUCTION: Final = (
    "<!-- Drawn from benchmarks/*.json by `python -m benchmarks --page`: do not edit. -->\n\n"
    "# Benchmarks\n\n"
    "Most figures are ratios of two subjects that take turns in one process, or in processes that "
    "take turns, so that whatever else the machine does slows both down: the median over the "
    "rounds, with the lower and the upper quartile. Such a ratio tells something about other "
    "machines; a duration does not.\n\n"
    "`nox -s bench` measures all of it and draws this page, `nox -s bench -- NAME` prints what one "
    "of the benchmarks finds. Durations, processor time and memory of every subject are in the "
    "tables at the end, and all of it lies beside the pictures, as JSON."
)
_LEGEND: Final = (
    "In the pictures a dot is a figure, the line through it reaches from quartile to quartile, and "
    "a short upright line is the target. A hollow dot has missed it."
)


@attrs.frozen
class Selector:
    """Figures, by three patterns with ``*``.

    Attributes:
        benchmark: Its name.
        report: Title.
        figure: Name.
    """

    benchmark: str
    report: str
    figure: str

    def of(self, results: Results) -> Iterator[tuple[Report, Figure]]:
        """Yield what it selects."""
        for name, benchmark in results.items():
            for report in benchmark.reports:
                if fnmatchcase(name, self.benchmark) and fnmatchcase(report.title, self.report):
                    for figure in report.figures:
                        if fnmatchcase(figure.name, self.figure):
                            yield report, figure


@attrs.frozen
class Reason:
    """Why targets are missed.

    Attributes:
        title: In a few words.
        misses: The figures that it explains, if they miss their targets.
        evidence: The figures that show it.
        text: The explanation, in Markdown.
        is_noise: Whether it explains only those whose quartiles include the target.
    """

    title: str
    misses: tuple[Selector, ...]
    evidence: tuple[Selector, ...]
    text: str
    is_noise: bool = False

    def missed(self, results: Results) -> list[tuple[Report, Figure]]:
        """Return what it explains in these results."""
        selected = [pair for selector in self.misses for pair in selector.of(results)]
        return [
            (report, figure)
            for report, figure in dict.fromkeys(selected)
            if figure.is_met is False and (figure.is_near or not self.is_noise)
        ]


def read_reasons(file: Path = REASONS) -> list[Reason]:
    """Return the reasons that people have written down."""
    return [
        Reason(
            title=entry["title"],
            misses=tuple(Selector(*of) for of in entry["misses"]),
            evidence=tuple(Selector(*of) for of in entry["evidence"]),
            text=entry["text"].strip(),
            is_noise=entry.get("is_noise", False),
        )
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["reason"]
    ]


def unexplained(results: Results, reasons: Sequence[Reason]) -> list[tuple[Report, Figure]]:
    """Return the figures that miss their targets without a reason."""
    explained = [pair for reason in reasons for pair in reason.missed(results)]
    return [
        (report, figure)
        for benchmark in results.values()
        for report in benchmark.reports
        for figure in report.figures
        if figure.is_met is False and (report, figure) not in explained
    ]


@attrs.frozen
class Page:
    """The page, its results and its pictures, in a directory of documentation."""

    docs: Path = DOCS

    @property
    def file(self) -> Path:
        """The page."""
        return self.docs / "benchmarks.md"

    @property
    def directory(self) -> Path:
        """Where the results and the pictures are."""
        return self.docs / "benchmarks"

    def results(self) -> dict[str, Benchmark]:
        """Return the results by name; nothing if there are none yet."""
        files = sorted(self.directory.glob("*.json"))
        return {name: of for file in files for name, of in loads(file.read_text()).items()}

    def update(self, newer: Results) -> None:
        """Replace the results of some benchmarks; the page stays as it is."""
        self.directory.mkdir(exist_ok=True)
        for name, benchmark in newer.items():
            (self.directory / f"{name}.json").write_text(dumps({name: benchmark}))

    def draw(self, reasons: Sequence[Reason]) -> None:
        """Write the page, and draw the pictures that do not show its results yet."""
        results = self.results()
        stale = set(self.directory.glob("*.svg"))
        for name, benchmark in results.items():
            file = self.directory / f"{name}.svg"
            if plot := plot_of(benchmark.reports):
                if file not in stale or shown_in(file) != plot.digest():
                    draw(plot, file)
                stale.discard(file)
        for file in stale:
            file.unlink()
        self.file.write_text(markdown(results, reasons), encoding="utf-8")
        for report, figure in unexplained(results, reasons):
            print(f"No reason in {REASONS.name}: {report.title}: {figure.name}", file=sys.stderr)


def markdown(results: Results, reasons: Sequence[Reason]) -> str:
    """Return the page."""
    parts = [_INTRODUCTION, *_targets(results), *_misses(results, reasons), *_machines(results)]
    parts += ["## What was measured", _LEGEND]
    for name, benchmark in results.items():
        parts += _benchmark(name, benchmark)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _targets(results: Results) -> Iterator[str]:
    lines = []
    met = 0
    for benchmark in results.values():
        for report in benchmark.reports:
            title = _escaped(report.title)
            for figure in report.figures:
                if figure.target:
                    met += bool(figure.is_met)
                    verdict = "met" if figure.is_met else "**missed**"
                    lines.append(_line(title, *_cells(figure), figure.target, verdict))
                    title = ""
    yield "## Targets"
    yield f"{met} of {len(lines)} are met."
    head = _line("measured", "what", "figure", "quartiles", "target", "")
    yield "\n".join([head, _rule(6), *lines])


def _misses(results: Results, reasons: Sequence[Reason]) -> Iterator[str]:
    yield "## Missed, and why"
    yield "Each reason is followed by the figures that show it, of the same runs."
    for reason in reasons:
        if missed := reason.missed(results):
            yield f"### {reason.title}"
            yield "\n".join(
                f"- {_escaped(report.title)}: {_escaped(figure.name)}, {_number(figure)}, target "
                f"{figure.target}"
                for report, figure in missed
            )
            yield reason.text
            yield "\n".join(_evidence(results, reason))
    for report, figure in unexplained(results, reasons):
        yield f"{_escaped(report.title)}: {_escaped(figure.name)}: the reason is not known yet."


def _evidence(results: Results, reason: Reason) -> Iterator[str]:
    yield _line("measured by", "", "what", "figure", "quartiles")
    yield _rule(5)
    for selector in reason.evidence:
        command = f"`python -m benchmarks {selector.benchmark}`"
        for report, figure in selector.of(results):
            yield _line(command, _escaped(report.title), *_cells(figure))


def _machines(results: Results) -> Iterator[str]:
    yield "## Where and when"
    head = _line("command", "date", "load before and after", "minutes", "on")
    rows = [
        _line(
            f"`{run.command}`",
            run.date,
            "{:.1f}, {:.1f}".format(*run.load),
            f"{run.seconds / 60:.1f}",
            _escaped(run.machine),
        )
        for run in (benchmark.run for benchmark in results.values())
    ]
    yield "\n".join([head, _rule(5), *rows])
    packages = {
        f"{name} {version}"
        for benchmark in results.values()
        for name, version in benchmark.run.packages.items()
    }
    yield f"With {', '.join(sorted(packages, key=str.lower))}."


def _benchmark(name: str, benchmark: Benchmark) -> Iterator[str]:
    yield f"### {name}"
    yield benchmark.about
    yield f"`{benchmark.run.command}`"
    if plot_of(benchmark.reports):
        yield f"![Figures of the benchmark {name}](benchmarks/{name}.svg)"
    tables = "\n".join(report.table() for report in benchmark.reports).strip("\n")
    yield "<details><summary>All of its tables</summary>"
    yield f"```text\n{tables}\n```"
    yield "</details>"


def _cells(figure: Figure) -> tuple[str, str, str]:
    spread = "{:.3g} to {:.3g}".format(*figure.spread) if figure.spread else ""
    return _escaped(figure.name), _number(figure), spread


def _number(figure: Figure) -> str:
    return f"{figure.value:.3g} {figure.unit}".strip()


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---" * columns + "|"


def _escaped(text: str) -> str:
    for mark in "\\|*_[]<`":
        text = text.replace(mark, f"\\{mark}")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Take in results, and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="results to take in")
    page = Page()
    for file in parser.parse_args(arguments).files:
        page.update(loads(file.read_text()))
    page.draw(read_reasons())


if __name__ == "__main__":
    main()
