"""Every benchmark works: its subjects do what they say, whatever time they take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.__main__ import main
from benchmarks.contenders import compare
from benchmarks.peer import BlockingClient, Client, Load, Plan, lacking
from benchmarks.peer_clients import ASYNC, BLOCKING, JSON
from benchmarks.peers_disk import KINDS as DISK
from benchmarks.peers_memory import PEERS as MEMORY
from benchmarks.runner import LoopLag, Options, Paired, Pass, Subject, SubjectError, paired

OURS = ("TieredStore", "TieredStore, uvloop", "TieredStore, trio")
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def names_of(kinds: Iterable[type[Client]]) -> Iterator[str]:
    """Yield the names of those that can be used here; what they load is proved by the benchmark."""
    return (kind.name for kind in kinds if not kind.missing())


def memory_peers() -> Iterator[str]:
    return (name for name, packages in MEMORY.items() if not lacking(*packages))


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        ("imports", {"import tieredkv", "from tieredkv import TieredStore"}),
        ("l1", {"cachetools.LRUCache", "get(str)", "get_many(32 ObjectKey)", "copy", "put"}),
        ("store", {"DiskBackend", "TieredStore", "threads with preadv"}),
        ("outage", {"disk alone", "disk below a tier that hangs"}),
        ("disk", {"bare, size", "bare, renamed", "checksum", "open"}),
        ("valkey", {"bare mget", "bare pipeline", "size", "checksum"}),
        ("hfbucket", {"huggingface_hub", "tieredkv"}),
        ("simulate", set()),
        ("peers_memory", {"cachetools.LRUCache", "copy", *OURS, *memory_peers()}),
        ("peers_disk", {"TieredStore", "TieredStore, size", *names_of(DISK)}),
        pytest.param(
            "peers_valkey",
            {"TieredStore, size", *OURS, *names_of((*BLOCKING, *ASYNC, *JSON))},
            marks=pytest.mark.network,
        ),
    ],
)
def test_a_benchmark_prints_what_it_writes(name: str, subjects: set[str], tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run(name, "--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert list(written["benchmarks"]) == [name]
    assert written["benchmarks"][name]["run"]["command"] == f"python -m benchmarks {name} --quick"
    reports: list[dict[str, Any]] = written["benchmarks"][name]["reports"]
    rows = [row for report in reports for row in report["rows"]]
    assert subjects <= {row["name"] for row in rows}
    assert all(0 < row["median_s"] <= row["p99_s"] for row in rows)
    for report in reports:
        assert report["title"] in done.stdout
        assert all(figure["name"] in done.stdout for figure in report["figures"])


@pytest.mark.network
def test_a_trace_is_replayed_through_all_tiers(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    trace = ROOT / "tests/cli/traces/chat.jsonl.gz"
    done = run(
        *("replay", "--quick", "--rounds", "1", "--json", str(file)),
        *("--trace", str(trace), "--chunks", "50", "--recompute-ms", "5"),
    )
    assert done.returncode == 0, done.stderr
    replay = json.loads(file.read_text())["benchmarks"]["replay"]
    assert " --trace chat.jsonl.gz --chunks 50 --recompute-ms 5.0" in replay["run"]["command"]
    (report,) = replay["reports"]
    assert report["title"].startswith("Replay of chat: ")
    assert " 50 of them distinct, a sample, 64 KiB each, 5 ms to compute one" in report["title"]
    figures = {figure["name"]: figure["value"] for figure in report["figures"]}
    for tiers in (["L1"], ["L1", "disk"], ["L1", "disk", "valkey"]):
        store = " + ".join(tiers)
        served = [f"hits in {tier.lower()}" for tier in tiers] + ["computed"]
        assert sum(figures[f"{store}: {what}"] for what in served) == pytest.approx(100, abs=0.1)
        assert figures[f"{store}: verified"] > 0
        assert figures[f"{store}: wrong values"] == 0
        assert figures[f"{store}: time, of that to compute all"] > 0


@pytest.mark.parametrize("loaded", [b"", bytes(64), b"other bytes"])
def test_a_peer_that_loads_other_bytes_than_it_stored_is_found_out(loaded: bytes) -> None:
    class Peer(BlockingClient):
        name = "peer"

        def open(self) -> None: ...

        def get(self, group: slice) -> Sequence[bytes]:
            return [loaded for _ in self.load.keys[group]]

        def set(self, group: slice) -> None: ...

        def close(self) -> None: ...

    async def compared() -> None:
        load = Load(64, 2)
        plan = Plan.batch(load, connections=1)
        await compare(
            Options(quick=True), load, plan, "load", title="", clients=[Peer(load, "")], stores=[]
        )

    with pytest.raises(AssertionError, match="peer loads wrong bytes"):
        anyio.run(compared)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["l2"], "'l2': choose from imports, l1,"),
        (["--rounds", "0"], "--rounds=0 must be at least 1"),
        (["--quick", "--page"], "leave one of them out"),
        (["lmcache_peer"], "needs --lmcache PYTHON"),
        (["replay", "--trace", "there-is-none"], "there-is-none: No such file"),
        (["replay", "--chunks", "0"], "--chunks=0 must be at least 1"),
        (["replay", "--recompute-ms", "0"], "--recompute-ms=0.0"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


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
