"""Pictures of the figures: one of each benchmark, in panels.

What a picture shows is computed without drawing, and its digest is written into the file, so that
one can tell without matplotlib whether the file shows what the results say. The colours are in the
middle between black and white: the background is the page's, light or dark.
"""

from __future__ import annotations

import hashlib
import json
import math
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import attrs

from benchmarks.report import Figure, Report
from benchmarks.svg import slim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "Plot", "Point", "draw", "plot_of", "shown_in"]

_GREY: Final = "#7b7b7b"  # the same contrast, 4.3, to white and to the dark pages' background
_COLOURS: Final = ("#2f86c9", "#cf6d17", "#3f9a55", "#a267c9", "#cc5560", "#87833a")
_WIDTH_INCHES: Final = 7.2
_LINE_INCHES: Final = 0.16
_FRAME_INCHES: Final = 0.75
_LABEL_CHARACTERS: Final = 40
_DECADES: Final = [10.0**power for power in range(-3, 5)]
_TICKS: Final = [digit * decade for decade in _DECADES for digit in (1, 2, 5)]
_MOST_TICKS: Final = 9
_GAP: Final = (math.nan, math.nan)
_LOGARITHMIC: Final = 8.0
"""From this ratio of the largest value to the smallest on."""
_SETTINGS: Final[dict[str, object]] = {
    "svg.hashsalt": "tieredkv",  # else every drawing has other ids
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib; all its others would be listed
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), _GREY),
    **dict.fromkeys(("xtick.color", "ytick.color"), _GREY),
}
_TEXTS: Final = f"font-family: 'DejaVu Sans', sans-serif; fill: {_GREY}"
_DESCRIPTION: Final = ".//{http://purl.org/dc/elements/1.1/}description"


@attrs.frozen
class Point:
    """A figure in a picture.

    Attributes:
        label: Of its report.
        series: What it has in common with figures of other reports.
        value: The figure's.
        spread: Its quartiles.
        target: What it is to reach, or not to exceed.
        is_met: Whether it does.
    """

    label: str
    series: str
    value: float
    spread: tuple[float, float] | None
    target: float | None
    is_met: bool | None


@attrs.frozen
class Panel:
    """Figures on one axis."""

    title: str
    axis: str
    points: tuple[Point, ...]


@attrs.frozen
class Plot:
    """A picture."""

    panels: tuple[Panel, ...]

    def digest(self) -> str:
        """Return a digest of what it shows."""
        return hashlib.sha256(json.dumps(attrs.asdict(self)).encode()).hexdigest()


@attrs.frozen
class _Line:
    """A line of a panel: a heading, or points that share it."""

    text: str
    points: tuple[Point, ...] = ()

    @property
    def wrapped(self) -> str:
        """The text as it is shown beside the axis."""
        return textwrap.fill(self.text.removesuffix(" (speed)"), _LABEL_CHARACTERS)

    @property
    def height(self) -> int:
        """How many points, or lines of text, there is room for."""
        return max(len(self.points), self.wrapped.count("\n") + 1 if self.points else 1)


def plot_of(reports: Sequence[Report]) -> Plot | None:
    """Return the picture of a benchmark; None if it has nothing to show."""
    panels: defaultdict[tuple[str, bool], list[tuple[str, list[Figure]]]] = defaultdict(list)
    for report in reports:
        unit = "x" if report.panel is None or not report.figures else report.figures[0].unit
        shown = [figure for figure in report.figures if figure.unit == unit]
        label = report.title if report.panel is None else report.label
        for is_speed in (False, True):
            if alike := [figure for figure in shown if _is_speed(figure) is is_speed]:
                panels[report.panel or "", is_speed].append((label, alike))
    return Plot(tuple(_panel(title, of) for (title, _), of in panels.items())) if panels else None


def draw(plot: Plot, file: Path) -> None:
    """Draw a picture as SVG; matplotlib has to be there."""
    from matplotlib import figure as figures
    from matplotlib import rc_context

    heights = [_height(panel) for panel in plot.panels]
    with rc_context(_SETTINGS):
        figure = figures.Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        all_axes = figure.subplots(len(heights), squeeze=False, height_ratios=heights)
        for axes, panel in zip(all_axes.flat, plot.panels, strict=True):
            _draw(axes, panel)
        told = {"Date": None, "Creator": None, "Description": plot.digest()}
        figure.savefig(file, format="svg", transparent=True, metadata=told)
    svg = file.read_text(encoding="utf-8")
    file.write_text(slim(svg, texts=_TEXTS), encoding="utf-8")


def shown_in(file: Path) -> str | None:
    """Return the digest of what a file of `draw` shows."""
    return ET.parse(file).findtext(_DESCRIPTION)


def _is_speed(figure: Figure) -> bool:
    return figure.name.endswith(" (speed)")


def _panel(title: str, reports: Sequence[tuple[str, Sequence[Figure]]]) -> Panel:
    names = {figure.name: _subject(figure) for _, figures in reports for figure in figures}
    if any(len({names[f.name] for f in figures}) < len(figures) for _, figures in reports):
        names = {name: name for name in names}
    points = tuple(
        Point(
            label=label,
            series=names[figure.name],
            value=figure.value,
            spread=figure.spread,
            target=figure.at_least if figure.at_most is None else figure.at_most,
            is_met=figure.is_met,
        )
        for label, figures in reports
        for figure in figures
    )
    return Panel(title, _axis([figure for _, figures in reports for figure in figures]), points)


def _subject(figure: Figure) -> str:
    """Return what is compared, without what it is compared with."""
    return figure.name.removesuffix(" (speed)").partition(" : ")[0]


def _axis(figures: Sequence[Figure]) -> str:
    unit = figures[0].unit
    if _is_speed(figures[0]):
        return "times the speed of what it is compared with: more is better"
    if any(figure.at_most is not None for figure in figures):
        direction = ": less is better"
    else:
        direction = ": more is better" * any(figure.at_least is not None for figure in figures)
    return ("times what it is compared with" if unit == "x" else unit) + direction


def _lines(panel: Panel) -> tuple[list[_Line], list[str]]:
    """Return a panel's lines from top to bottom, and the series that have colours of their own."""
    labels = list(dict.fromkeys(point.label for point in panel.points))
    series = list(dict.fromkeys(point.series for point in panel.points))
    grouped = [(at, tuple(p for p in panel.points if p.label == at)) for at in labels]
    if len(series) < len(panel.points) and len(series) <= len(_COLOURS):
        return [_Line(label, points) for label, points in grouped], series
    lines = []
    for label, points in grouped:
        lines += [_Line(label)] * bool(label)
        lines += [_Line(point.series, (point,)) for point in points]
    return lines, []


def _height(panel: Panel) -> float:
    lines, _ = _lines(panel)
    return _FRAME_INCHES + _LINE_INCHES * sum(line.height for line in lines)


def _draw(axes: Axes, panel: Panel) -> None:
    lines, series = _lines(panel)
    places: list[tuple[float, Point]] = []
    ticks: dict[float, str] = {}
    at = 0.0
    for line in lines:
        middle = at + (line.height - 1) / 2
        first = middle - (len(line.points) - 1) / 2
        places += [(first + number, point) for number, point in enumerate(line.points)]
        if line.points:
            ticks[middle] = line.wrapped
        else:  # a heading has the whole width
            where = axes.get_yaxis_transform()
            axes.text(0.01, middle, line.text, transform=where, va="center", fontstyle="italic")
        at += line.height + 0.5 * bool(series)
    for name, colour in zip(series or [""], _COLOURS, strict=False):
        _mark(axes, [of for of in places if of[1].series == name or not series], colour, name)
    targets = [(point.target, y) for y, point in places if point.target is not None]
    axes.plot(*_columns(targets), "|", color=_GREY, markersize=9, markeredgewidth=1.6)
    axes.margins(x=0.08)
    axes.set_ylim(at - 0.4, -0.6)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.tick_params("y", length=0)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.axis)
    if panel.axis.startswith("times"):
        axes.axvline(1, color=_GREY, linewidth=0.8, linestyle=":")
        if _is_wide(panel):
            _use_logarithms(axes)
    if len(series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _mark(axes: Axes, places: Sequence[tuple[float, Point]], colour: str, name: str) -> None:
    """Draw the points of one series, each at its height."""
    spreads = [(*point.spread, y) for y, point in places if point.spread]
    ends = [end for low, high, y in spreads for end in ((low, y), (high, y), _GAP)]
    line = {"color": colour, "linewidth": 1.2, "alpha": 0.6, "solid_capstyle": "butt"}
    axes.plot(*_columns(ends), zorder=1, **line)  # all of them are one path of the file
    full = [(point.value, y) for y, point in places if point.is_met is not False]
    hollow = [(point.value, y) for y, point in places if point.is_met is False]
    axes.plot(*_columns(full), "o", color=colour, markersize=4, label=name)
    axes.plot(*_columns(hollow), "o", color=colour, markersize=4, markerfacecolor="none")
    for y, point in places:
        right = max(point.value, point.target or 0, *(point.spread or ()))
        text = f"{point.value:.3g}"
        axes.annotate(text, (right, y), (5, 0), textcoords="offset points", va="center", fontsize=6)


def _columns(rows: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [[row[at] for row in rows] for at in range(2)]


def _use_logarithms(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    shown = [tick for tick in _TICKS if low <= tick <= high]
    if len(shown) > _MOST_TICKS:
        shown = [tick for tick in _DECADES if low <= tick <= high]
    axes.set_xticks(shown)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")


def _is_wide(panel: Panel) -> bool:
    values = [point.value for point in panel.points]
    return min(values) > 0 and max(values) / min(values) > _LOGARITHMIC
