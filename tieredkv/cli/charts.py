"""How a report is drawn below its main table: bars of latencies, outcomes, and phases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tieredkv.cli.faults import Outcomes, Phase
    from tieredkv.cli.report import Latency

__all__ = ["LatencyBars", "milliseconds", "outcome_table", "phase_table"]

_BAR_CELLS: Final = 34
_DECADES: Final = 6  # the scale is logarithmic, from …
_LEAST_S: Final = 1e-5  # … this to 10 s
_EXPECTED: Final = frozenset({"hit", "miss", "stored", "deleted", "absent", "back_fill"})


class LatencyBars:
    """A bar for each tier, on a logarithmic scale: to the median, and on to the 99th percentile."""

    def __init__(self, latencies: Mapping[str, Latency]) -> None:
        self._latencies = latencies

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a line for each tier that was asked."""
        full, pale, empty = "#=." if options.ascii_only else "█▒·"
        yield Text("reads of the tiers below L1, p50 and p99 (10 us to 10 s)", "dim")
        for tier, latency in self._latencies.items():
            median, late = _cells(latency.p50_s), _cells(latency.p99_s)
            line = Text(f"{tier:<8} ")
            line.append(full * median, "green")
            line.append(pale * (late - median), "yellow")
            line.append(empty * (_BAR_CELLS - late), "dim")
            line.append(f" {milliseconds(latency.p50_s)} ms, {milliseconds(latency.p99_s)} ms")
            yield line


def outcome_table(outcomes: Outcomes) -> Table:
    """Return how each tier answered; what is not as usual stands out."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("tier", min_width=8, no_wrap=True)
    table.add_column("asked to", min_width=8, no_wrap=True)
    table.add_column("answers, in keys")
    for tier, operations in outcomes.items():
        name = tier
        for operation, answers in operations.items():
            table.add_row(name, operation, _answers(answers))
            name = ""
    return table


def phase_table(phases: Sequence[Phase]) -> Table:
    """Return what served the requests of each phase, and how a tier that failed then answered."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("phase")
    table.add_column("requests", justify="right", no_wrap=True)
    table.add_column("chunks served by, and answers that are not as usual")
    for phase in phases:
        chunks = sum(phase.chunks.values()) or 1
        shares = ", ".join(f"{tier} {count / chunks:.1%}" for tier, count in phase.chunks.items())
        text = Text(shares)
        if phase.recomputed:
            text.append(f"\n{phase.recomputed:,} computed again")
        for tier, operations in phase.outcomes.items():
            for operation, answers in operations.items():
                unusual = {name: n for name, n in answers.items() if name not in _EXPECTED}
                if unusual:
                    text.append(f"\n{tier}: {operation} ")
                    text.append_text(_answers(unusual))
        table.add_row(phase.begin, f"{phase.requests:,}", text)
    return table


def milliseconds(duration_s: float) -> str:
    """Return a duration with about three digits; nothing for none."""
    if not duration_s:
        return ""
    number = duration_s * 1e3
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"


def _answers(answers: Mapping[str, int]) -> Text:
    return Text(", ").join(
        Text(f"{outcome} {times:,}", "" if outcome in _EXPECTED else "yellow")
        for outcome, times in answers.items()
    )


def _cells(duration_s: float) -> int:
    if duration_s <= _LEAST_S:
        return 0
    return min(_BAR_CELLS, round(math.log10(duration_s / _LEAST_S) / _DECADES * _BAR_CELLS))
