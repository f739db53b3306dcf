"""Every benchmark works: its subjects do what they say, whatever time they take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runner import LoopLag, Paired, Pass, Subject, SubjectError, paired

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        ("imports", {"import tieredkv", "from tieredkv import TieredStore"}),
        ("l1", {"cachetools.LRUCache", "get(str)", "get_many(32 ObjectKey)", "copy", "put"}),
        ("store", {"DiskBackend", "TieredStore", "threads with preadv"}),
        ("outage", {"disk alone", "disk below a tier that hangs"}),
    ],
)
def test_a_benchmark_prints_what_it_writes(name: str, subjects: set[str], tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(name, "--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written["machine"]["python"]
    assert list(written["benchmarks"]) == [name]
    reports: list[dict[str, Any]] = written["benchmarks"][name]
    rows = [row for report in reports for row in report["rows"]]
    assert subjects <= {row["name"] for row in rows}
    assert all(0 < row["median_s"] <= row["p99_s"] for row in rows)
    for report in reports:
        assert report["title"] in done.stdout
        assert all(figure["name"] in done.stdout for figure in report["figures"])


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    done = run("l2")
    assert done.returncode == 2
    assert "'l2'" in done.stderr
    assert "l1" in done.stderr


class TestPaired:
    pytestmark = pytest.mark.anyio

    async def test_subjects_take_turns_in_an_order_that_rotates(
        self, anyio_backend: object
    ) -> None:
        calls: list[str] = []

        def subject(name: str) -> Subject:
            async def run() -> int:
                calls.append(name)
                return 1

            return Subject(name, run)

        await paired([subject(name) for name in "abc"], rounds=3, warmup=0)
        assert "".join(calls) == "abcbcacab"

    async def test_a_ratio_is_the_median_over_the_rounds(self, anyio_backend: object) -> None:
        result = await measured(base=[1.0, 1.0, 4.0], ours=[2.0, 8.0, 12.0])
        figure = result.ratio("ours", "base", at_most=3)
        assert (figure.value, figure.spread) == (3, (2.5, 5.5))
        assert figure.verdict == "met: at most 3"
        assert result.ratio("ours", "base", speed=True, at_least=0.5).verdict.startswith("MISSED")

    async def test_warm_up_rounds_do_not_count(self, anyio_backend: object) -> None:
        result = await measured(base=[9.0, 1.0], ours=[9.0, 1.0], warmup=1)
        assert [row.p99_s for row in result.rows()] == [1, 1]

    async def test_durations_are_those_of_one_operation(self, anyio_backend: object) -> None:
        result = await measured(base=[8.0], ours=[8.0], operations=4)
        assert result.rows()[0].median_s == 2

    async def test_what_a_subject_raises_keeps_none_of_its_frames(
        self, anyio_backend: object
    ) -> None:
        def fail() -> int:
            raise ValueError("a vendor's")

        with pytest.raises(SubjectError, match=r"(?s)bad: .*in fail.*a vendor's") as caught:
            await paired([Subject("bad", fail)], rounds=1)
        assert caught.value.__cause__ is None
        context = caught.value.__context__
        assert context is None or context.__traceback__ is None


class TestLoopLag:
    pytestmark = pytest.mark.anyio

    async def test_what_waited_for_a_processor_was_not_held(
        self, anyio_backend: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited = count(step=3600)
        monkeypatch.setattr("benchmarks.runner._waited_for_processor_s", lambda: next(waited))
        assert await lag_of_a_stall() == (True, False)

    async def test_what_blocks_the_loop_is_held(
        self, anyio_backend: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("benchmarks.runner._waited_for_processor_s", lambda: 0.0)
        assert await lag_of_a_stall() == (True, True)


async def lag_of_a_stall() -> tuple[bool, bool]:
    """Block the loop beyond a probe; return whether it was late, and whether it was held."""
    lag = LoopLag()
    async with lag.watch():
        time.sleep(0.005)
    return bool(lag.lags_s), bool(lag.held_s)


async def measured(
    *, base: list[float], ours: list[float], operations: int = 1, warmup: int = 0
) -> Paired:
    """Compare two subjects whose passes last as long as they say."""

    def subject(name: str, durations: list[float]) -> Subject:
        left = iter(durations)
        return Subject(name, lambda: Pass(operations, seconds=next(left)))

    rounds = len(base) - warmup
    return await paired(
        [subject("base", base), subject("ours", ours)], rounds=rounds, warmup=warmup
    )
