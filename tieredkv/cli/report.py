"""What a replay has to report: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from tieredkv.cli.charts import LatencyBars, milliseconds, outcome_table, phase_table
from tieredkv.cli.faults import Outcomes, Phase, outcomes_of
from tieredkv.cli.replay import COMPUTED
from tieredkv.cli.sizes import size_text

if TYPE_CHECKING:
    from tieredkv.cli.replay import Tally
    from tieredkv.observe import StoreStats

__all__ = ["Holding", "Latency", "Report", "Row"]

_COLUMNS: Final = {  # title → width, so that the live table does not move about
    "tier": 8,
    "objects": 7,
    "bytes": 8,
    "chunks": 7,
    "ratio": 6,
    "GB/s": 5,
    "p50 ms": 6,
    "p99 ms": 6,
    "verified": 8,
}


@attrs.frozen
class Holding:
    """What a tier holds: objects, and the bytes that they take there."""

    objects: int
    nbytes: int


@attrs.frozen
class Latency:
    """How long the reads of a tier took, in seconds: half of them no longer, 99 % no longer."""

    p50_s: float
    p99_s: float


@attrs.frozen(kw_only=True)
class Row:
    """One tier, or what was computed.

    Attributes:
        tier: Its name.
        objects: Values that it holds; None if that is not known (yet).
        stored_bytes: Bytes that they take there.
        chunks: Chunks that it served (hits); in the last row: that were computed (misses).
        ratio: Their share of all chunks asked for: hit ratio, and miss ratio.
        nbytes: Their payload.
        verified_bytes: Payload that was compared, byte by byte, and is right.
        bytes_per_s: Payload a second of the calls that brought it; 0 without any.
        p50_s: Median duration of these calls, in seconds; each is for many of a request's chunks.
        p99_s: 99 % of them took no longer.
    """

    tier: str
    objects: int | None
    stored_bytes: int | None
    chunks: int
    ratio: float
    nbytes: int
    verified_bytes: int
    bytes_per_s: float
    p50_s: float
    p99_s: float


@attrs.frozen(kw_only=True)
class Report:
    """A replay at one moment, or at its end.

    Attributes:
        rows: One a tier, in order of look-up, and one for what was computed.
        requests: Requests served …
        planned_requests: … and how many there were to serve.
        chunks: Chunks that they asked for.
        value_bytes: Size of each.
        elapsed_s: How long it took.
        wrong_values: Values that a tier handed out with wrong bytes.
        faults: What was wrong with the first few of them.
        corrupt_copies: Copies whose checksum was wrong, so that the store did not hand them out.
        recomputed: Chunks that were computed though they had been before.
        latencies: L2 tier → its reads, for those that were read.
        outcomes: How the L2 tiers have answered.
        phases: From the start, and from each fault on.
    """

    rows: Sequence[Row]
    requests: int
    planned_requests: int
    chunks: int
    value_bytes: int
    elapsed_s: float
    wrong_values: int
    faults: Sequence[str]
    corrupt_copies: int
    recomputed: int
    latencies: Mapping[str, Latency]
    outcomes: Outcomes
    phases: Sequence[Phase]

    @classmethod
    def of(
        cls,
        tally: Tally,
        stats: StoreStats,
        holdings: Mapping[str, Holding],
        phases: Sequence[Phase],
        *,
        planned_requests: int,
        value_bytes: int,
    ) -> Report:
        """Make a report.

        Args:
            tally: What came of the replay.
            stats: What the store says.
            holdings: Tier → what it holds, where known; L1's is in `stats`.
            phases: From the start, and from each fault on.
            planned_requests: Requests to serve in all.
            value_bytes: Size of a chunk.
        """
        holdings = {"l1": Holding(stats.l1.objects, stats.l1.used_bytes), **holdings}
        outcomes = outcomes_of(stats)
        return cls(
            rows=[_row(name, tally, holdings.get(name)) for name in tally.traffic],
            requests=tally.requests,
            planned_requests=planned_requests,
            chunks=tally.chunks,
            value_bytes=value_bytes,
            elapsed_s=tally.elapsed_s,
            wrong_values=tally.wrong_values,
            faults=tuple(tally.faults),
            corrupt_copies=sum(
                answers.get("read", {}).get("corrupt", 0) for answers in outcomes.values()
            ),
            recomputed=tally.recomputed,
            latencies={
                tier: Latency(reads.quantile(0.5), reads.quantile(0.99))
                for tier, counts in stats.tiers.items()
                if (reads := counts.latency.get("read")) is not None
            },
            outcomes=outcomes,
            phases=phases,
        )

    @property
    def is_right(self) -> bool:
        """Whether no wrong byte was met, neither in what was handed out nor in a tier."""
        return not self.wrong_values and not self.corrupt_copies

    def as_json(self) -> dict[str, Any]:
        """Return the report as an object for JSON; units are in the names."""
        return {**attrs.asdict(self), "is_right": self.is_right}

    def table(self) -> Table:
        """Return the rows as a table of at most 80 columns."""
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.caption = "GB/s and ms: calls for chunks of one request; last row: their puts"
        table.caption_justify = "left"
        for title, width in _COLUMNS.items():
            justify: JustifyMethod = "left" if title == "tier" else "right"
            table.add_column(title, min_width=width, justify=justify, no_wrap=True)
        for row in self.rows:
            table.add_row(
                row.tier,
                "" if row.objects is None else f"{row.objects:,}",
                "" if row.stored_bytes is None else size_text(row.stored_bytes),
                f"{row.chunks:,}",
                f"{row.ratio:.1%}",
                f"{row.bytes_per_s / 1e9:.2f}" if row.p50_s else "",
                milliseconds(row.p50_s),
                milliseconds(row.p99_s),
                "" if row.tier == COMPUTED else size_text(row.verified_bytes),
                style="dim" if row.tier == COMPUTED else None,
            )
        return table

    def details(self) -> Group:
        """Return latencies, outcomes and, where there were faults, phases, below one another."""
        parts: list[RenderableType] = [LatencyBars(self.latencies), outcome_table(self.outcomes)]
        if len(self.phases) > 1:
            parts.append(phase_table(self.phases))
        return Group(*parts)

    def verdict(self) -> Text:
        """Return in words what it all comes to."""
        hits = sum(row.chunks for row in self.rows if row.tier != COMPUTED)
        verified_bytes = sum(row.verified_bytes for row in self.rows)
        text = Text(
            f"{self.requests:,} of {self.planned_requests:,} requests in {self.elapsed_s:.1f} s, "
            f"{self.chunks:,} chunks of {size_text(self.value_bytes)}.\n"
        )
        if self.recomputed:
            text.append(f"Chunks that were computed again: {self.recomputed:,}.\n")
        if self.corrupt_copies:
            text.append(
                f"Copies with wrong bytes, which the store did not hand out: "
                f"{self.corrupt_copies:,}.\n",
                "bold red",
            )
        if self.wrong_values:
            text.append(
                f"WRONG values, which it did hand out: {self.wrong_values:,}.\n", "bold red"
            )
            text.append("".join(f"  {fault}\n" for fault in self.faults), "red")
        elif not hits:
            text.append("No chunk was found, so there was nothing to verify.", "yellow")
        else:
            text.append(
                f"Every byte of the {hits:,} hits is right ({size_text(verified_bytes)}).", "green"
            )
        text.rstrip()
        return text


def _row(name: str, tally: Tally, holding: Holding | None) -> Row:
    traffic = tally.traffic[name]
    calls = traffic.calls
    return Row(
        tier=name,
        objects=holding.objects if holding else None,
        stored_bytes=holding.nbytes if holding else None,
        chunks=traffic.chunks,
        ratio=traffic.chunks / (tally.chunks or 1),
        nbytes=traffic.nbytes,
        verified_bytes=traffic.verified_bytes,
        bytes_per_s=traffic.timed_bytes / (calls.total_s or 1),
        p50_s=calls.quantile(0.5),
        p99_s=calls.quantile(0.99),
    )
