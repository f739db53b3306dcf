"""The page on metrics: its examples work, and no figure, metric, outcome or span is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any, get_args

import attrs
import pytest

from tests.docs.examples import DOCS, ROOT
from tieredkv.observe import Histogram, L1Stats, Removal, StoreStats, TierStats
from tieredkv.observe.instruments import DURATION, INSTRUMENTS
from tieredkv.results import DeleteStatus, GetStatus, PutStatus

PAGE = DOCS / "reference/metrics.md"
CODE = {path: path.read_text() for path in (ROOT / "tieredkv").rglob("*.py")}


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table whose head begins with a title."""
    table = re.search(
        rf"^\| {re.escape(title)} \|.*\n\|[-|]+\n((\|.*\n)+)", PAGE.read_text(), re.MULTILINE
    )
    assert table is not None, title
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].splitlines()]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_its_examples_work() -> None:
    # In a process of its own: a provider is set once and for all.
    program = (
        "import asyncio, pathlib, sys; from tests.docs.examples import run; "
        "asyncio.run(run(pathlib.Path(sys.argv[1]), {}, {}))"
    )
    subprocess.run([sys.executable, "-c", program, str(PAGE)], check=True, timeout=60, cwd=ROOT)


@pytest.mark.parametrize(
    ("title", "figures"),
    [
        ("figure of `stats()`", StoreStats),
        ("figure of `stats().l1`", L1Stats),
        ("figure of `stats().tiers[name]`", TierStats),
    ],
)
def test_every_figure_is_told(title: str, figures: type) -> None:
    told = [name for row in rows(title) for name in names(row[0])]
    properties = [name for name, of in vars(figures).items() if isinstance(of, property)]
    assert sorted(told) == sorted([field.name for field in attrs.fields(figures)] + properties)


def test_every_cause_is_told() -> None:
    assert [names(row[0])[0] for row in rows("cause")] == list(get_args(Removal))


def told_outcomes() -> set[tuple[str, str]]:
    return {
        (names(operation)[0], outcome)
        for operation, outcomes, _ in rows("operation")
        for outcome in names(outcomes)
    }


def test_every_outcome_is_told() -> None:
    never_last = {PutStatus.PENDING, DeleteStatus.PINNED}
    assert told_outcomes() >= {
        (operation, status.value)
        for operation, statuses in (
            ("read", GetStatus),
            ("write", PutStatus),
            ("delete", DeleteStatus),
        )
        for status in statuses
        if status not in never_last
    }


def test_every_cause_that_the_code_counts_is_told() -> None:
    counted = {
        cell
        for text in CODE.values()
        for cell in re.findall(r'counts\.count\(\s*"(\w+)",\s*"(\w+)"', text)
    }
    refused = {
        ("write", reason)
        for text in CODE.values()
        for reason in re.findall(r'refuse\([^)"]*"(\w+)"', text)
    }
    assert ("read", "foreign") in counted
    assert told_outcomes() >= counted | refused


def test_every_metric_is_told_as_it_is() -> None:
    table = {names(row[0])[0]: row[1:4] for row in rows("metric")}
    assert table.pop(DURATION) == ["histogram", "s", "tier, operation, outcome"]
    assert table.keys() == {instrument.name for instrument in INSTRUMENTS}
    stats = example()
    for instrument in INSTRUMENTS:
        kind, unit, attributes = table[instrument.name]
        assert (kind, unit) == (instrument.kind, instrument.unit)
        points = list(instrument.points(stats))
        assert points, instrument.name
        for _, point in points:
            assert [name.removeprefix("tieredkv.") for name in point] == (
                attributes.split(", ") if attributes else []
            )


def example() -> StoreStats:
    """Return figures with something of everything."""

    def make(of: type) -> dict[str, Any]:
        return {field.name: 1 for field in attrs.fields(of)}

    l1 = make(L1Stats) | {"removed": {"room": 1}, "residence": Histogram()}
    tier = make(TierStats) | {"outcomes": {("read", "hit"): 1}, "nbytes": {"read": 1}}
    whole = make(StoreStats) | {"l1": L1Stats(**l1), "tiers": {"disk": TierStats(**tier)}}
    return StoreStats(**whole)


def test_every_span_is_told() -> None:
    store = next(text for path, text in CODE.items() if path.name == "store.py")
    spans = set(re.findall(r'telemetry\.span\("(\w+)"', store))
    operations = {operation for operation, _ in told_outcomes()}
    told = {name for row in rows("span") for name in names(row[0])}
    assert told == spans | {f"{operation} TIER" for operation in operations}
