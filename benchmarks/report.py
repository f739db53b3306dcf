"""What a measurement found: a table of its subjects, and the figures that matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from tieredkv.config import MiB

__all__ = ["Figure", "Report", "Row"]


@attrs.frozen
class Figure:
    """One number of a report, with its target if it has one.

    Attributes:
        name: What it is.
        value: A median, where there are several.
        unit: ``"x"`` for a ratio.
        spread: Lower and upper quartile.
        at_most: Target.
        at_least: Target.
    """

    name: str
    value: float
    unit: str = "x"
    spread: tuple[float, float] | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str:
        """The target in words; empty without one."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None

    @property
    def is_near(self) -> bool:
        """Whether the target lies between the quartiles."""
        target = self.at_least if self.at_most is None else self.at_most
        return (
            target is not None
            and self.spread is not None
            and self.spread[0] <= target <= self.spread[1]
        )

    @property
    def verdict(self) -> str:
        """``"met"`` or ``"MISSED"`` with the target; empty without one."""
        return f"{'met' if self.is_met else 'MISSED'}: {self.target}" if self.target else ""


@attrs.frozen
class Row:
    """One subject's line of a table; seconds, each of one operation.

    Attributes:
        name: The subject.
        median_s: Median over the passes.
        p99_s: 99th percentile over the passes.
        cpu_s: Median of the CPU time, of all threads.
        rss_bytes: Most resident memory after a pass.
        bytes_per_s: Bytes moved, over the median; 0 if it moves none.
        lag_p99_s: How late the event loop ran what was due, 99th percentile; None if not watched.
        lag_worst_s: The same, worst.
        held_p99_s: 99th percentile of what was late though a processor was free for it.
    """

    name: str
    median_s: float
    p99_s: float
    cpu_s: float
    rss_bytes: int
    bytes_per_s: float
    lag_p99_s: float | None
    lag_worst_s: float | None
    held_p99_s: float | None


def _tuple_of_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(rows)


def _tuple_of_figures(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    return tuple(figures)


@attrs.frozen
class Report:
    """The outcome of one measurement: a table, and the figures that matter.

    Attributes:
        title: What was measured; unique in a benchmark.
        rows: The table.
        figures: What matters.
        panel: The panel of the benchmark's picture that shows the figures which have the unit of
            the first; None: one that shows all of the benchmark's ratios that no other does.
        label: What it stands for there, as the size of the values; empty if nothing need be said.
    """

    title: str
    rows: Sequence[Row] = attrs.field(default=(), converter=_tuple_of_rows)
    figures: Sequence[Figure] = attrs.field(default=(), converter=_tuple_of_figures)
    panel: str | None = None
    label: str = ""

    def table(self) -> str:
        """Return the report as text."""
        lines = [f"\n{self.title}"]
        if self.rows:
            watched = any(row.lag_worst_s is not None for row in self.rows)
            moves = any(row.bytes_per_s for row in self.rows)
            head = ["", "median", "p99", "cpu", "rss"]
            head += ["GB/s"] * moves + ["lag p99", "lag worst", "held p99"] * watched
            cells = [head]
            for row in self.rows:
                line = [row.name, _time(row.median_s), _time(row.p99_s), _time(row.cpu_s)]
                line.append(f"{row.rss_bytes / MiB:.0f} MiB")
                line += [f"{row.bytes_per_s / 1e9:.2f}"] * moves
                lags = (row.lag_p99_s, row.lag_worst_s, row.held_p99_s)
                line += [_time(lag or 0) for lag in lags] * watched
                cells.append(line)
            lines += _aligned(cells)
        figures = []
        for figure in self.figures:
            low, high = figure.spread or (0, 0)
            spread = f"{low:.2f}-{high:.2f}" if figure.spread else ""
            figures.append([figure.name, f"{figure.value:.4g} {figure.unit}", spread])
            figures[-1].append(figure.verdict)
        return "\n".join(lines + _aligned(figures))


def _time(seconds: float) -> str:
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns: the first one to the left, the others to the right."""
    if not cells:
        return []
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
