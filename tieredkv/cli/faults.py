"""Tiers that fail on the way: what `--kill` and `--restart` say, and what came of it.

A fault begins a phase of the replay; the beginning is one, too. A phase says what served its
requests, and how the tiers answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs
import click

from tieredkv.cli.replay import Tally

if TYPE_CHECKING:
    from tieredkv.observe import StoreStats

    ParamTypeOfMoment = click.ParamType["Moment"]
else:
    ParamTypeOfMoment = click.ParamType

__all__ = ["MOMENT", "Fault", "Moment", "Outcomes", "Phase", "Phases", "checked", "outcomes_of"]

_FORM: Final = re.compile(r"([^@]+)@(\d{1,3}(?:\.\d{1,9})?)%")

Outcomes: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Tier → operation → outcome → how many keys ended so."""


@attrs.frozen
class Moment:
    """A tier, and the share of the requests after which something happens to it."""

    tier: str
    share: float


@attrs.frozen
class Fault:
    """What happens to a tier after a share of the requests."""

    share: float
    tier: str
    kind: Literal["killed", "restarted"]


class _Moment(ParamTypeOfMoment):
    name = "TIER@PERCENT%"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Moment:
        if isinstance(value, Moment):
            return value
        form = _FORM.fullmatch(str(value))
        if form is None or float(form[2]) > 100:
            self.fail(f"{value!r} must be a tier and a share, like valkey@30%", param, ctx)
        return Moment(form[1], float(form[2]) / 100)


MOMENT: Final = _Moment()


def checked(
    kills: Sequence[Moment], restarts: Sequence[Moment], tiers: Sequence[str]
) -> list[Fault]:
    """Return all faults in order.

    Raises:
        click.UsageError: A tier is not there, is killed while it is dead, or restarted while it
            runs.
    """
    faults = [Fault(moment.share, moment.tier, "killed") for moment in kills]
    faults += [Fault(moment.share, moment.tier, "restarted") for moment in restarts]
    faults.sort(key=lambda fault: fault.share)
    running = dict.fromkeys(tiers, True)
    for fault in faults:
        option = "--kill" if fault.kind == "killed" else "--restart"
        shown = f"{option} {fault.tier}@{fault.share * 100:g}%"
        if fault.tier not in running:
            raise click.UsageError(f"{shown}: --tiers has {', '.join(tiers)}")
        if running[fault.tier] != (fault.kind == "killed"):
            state = "runs" if running[fault.tier] else "does not run"
            raise click.UsageError(f"{shown}: it {state} then")
        running[fault.tier] = not running[fault.tier]
    return faults


@attrs.frozen(kw_only=True)
class Phase:
    """What came of the requests from one fault to the next.

    Attributes:
        begin: In words, what began it.
        first_request: How many requests were served before.
        requests: Requests served.
        chunks: Tier, or `COMPUTED` → chunks that it served.
        recomputed: Chunks that were computed though they had been before: their values were
            evicted everywhere, or their tier did not answer.
        outcomes: How the tiers answered.
    """

    begin: str
    first_request: int
    requests: int
    chunks: Mapping[str, int]
    recomputed: int
    outcomes: Outcomes


@attrs.frozen
class _Mark:
    begin: str
    requests: int
    recomputed: int
    chunks: Mapping[str, int]
    outcomes: Outcomes


class Phases:
    """Cuts a replay into phases."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []

    def begin(self, begin: str, tally: Tally, stats: StoreStats) -> None:
        """Begin a phase."""
        self._marks.append(_mark(begin, tally, stats))

    def until(self, tally: Tally, stats: StoreStats) -> list[Phase]:
        """Return the phases, the last of them as it is now."""
        marks = [*self._marks, _mark("", tally, stats)]
        return [
            Phase(
                begin=first.begin,
                first_request=first.requests,
                requests=end.requests - first.requests,
                chunks={tier: chunks - first.chunks[tier] for tier, chunks in end.chunks.items()},
                recomputed=end.recomputed - first.recomputed,
                outcomes=_since(first.outcomes, end.outcomes),
            )
            for first, end in pairwise(marks)
        ]


def outcomes_of(stats: StoreStats) -> Outcomes:
    """Return how the L2 tiers have answered."""
    outcomes: Outcomes = {}
    for tier, counts in stats.tiers.items():
        for (operation, outcome), times in counts.outcomes.items():
            outcomes.setdefault(tier, {}).setdefault(operation, {})[outcome] = times
    return outcomes


def _mark(begin: str, tally: Tally, stats: StoreStats) -> _Mark:
    chunks = {tier: traffic.chunks for tier, traffic in tally.traffic.items()}
    return _Mark(begin, tally.requests, tally.recomputed, chunks, outcomes_of(stats))


def _since(first: Outcomes, end: Outcomes) -> Outcomes:
    since: Outcomes = {}
    for tier, operations in end.items():
        for operation, outcomes in operations.items():
            before = first.get(tier, {}).get(operation, {})
            for outcome, times in outcomes.items():
                if more := times - before.get(outcome, 0):
                    since.setdefault(tier, {}).setdefault(operation, {})[outcome] = more
    return since
