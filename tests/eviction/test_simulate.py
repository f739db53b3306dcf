"""The simulator, on traces whose figures are known."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from benchmarks.simulate import belady, main, natural_hits, replay
from tieredkv import L1Config, TieredStore
from tieredkv.pool.eviction import PolicyName, make_policy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def textbook(tmp_path: Path) -> Path:
    # Belady's sequence, a chunk a request: with room for 3, LRU hits twice and the best 5 times.
    sequence = (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)
    return write(tmp_path / "trace.jsonl", [[[chunk, 1]] for chunk in sequence])


def write(path: Path, requests: list[list[list[int]]]) -> Path:
    text = "".join(json.dumps([float(i), runs]) + "\n" for i, runs in enumerate(requests))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def run(path: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    main([str(path), "--json", *arguments])
    return json.loads(capsys.readouterr().out)


def test_a_row_for_each_policy_and_the_best_possible_one(
    textbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(textbook, "--capacity", "60,100", "--policy", "lru,noop", capsys=capsys)
    assert rows == {
        "lru": [round(2 / 12, 6), round(7 / 12, 6)],
        "noop": [round(5 / 12, 6), round(7 / 12, 6)],
        "min": [round(5 / 12, 6), round(7 / 12, 6)],
    }


def test_without_arguments_it_is_the_default_policy_at_five_capacities(
    textbook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(textbook, capsys=capsys)
    assert list(rows) == ["default", "min"]
    assert len(rows["default"]) == len(rows["min"]) == 5


def test_traces_may_be_gzipped(
    textbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zipped = tmp_path / "trace.jsonl.gz"
    zipped.write_bytes(gzip.compress(textbook.read_bytes()))
    assert run(zipped, capsys=capsys) == run(textbook, capsys=capsys)


def test_chunks_count_where_an_id_follows_different_ids() -> None:
    assert natural_hits([[1, 2, 3], [1, 4]]) == "prefix"
    assert natural_hits([[1, 2, 3], [4, 2]]) == "chunk"
    assert natural_hits([[1, 2], [2]]) == "chunk"


def test_a_prefix_ends_at_the_first_chunk_that_is_not_held() -> None:
    chains = [[1, 2, 3], [1, 9, 3]]
    assert replay(chains, make_policy("lru"), 10, "prefix") == 1 / 6
    assert replay(chains, make_policy("lru"), 10, "chunk") == 2 / 6


def test_what_counts_as_a_hit_can_be_overridden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path / "trace.jsonl", [[[1, 3]], [[1, 1], [9, 1], [3, 1]]])
    whole = ("--capacity", "100")
    assert run(trace, *whole, capsys=capsys)["default"] == [round(2 / 6, 6)]
    assert run(trace, *whole, "--hits", "prefix", capsys=capsys)["default"] == [round(1 / 6, 6)]


@pytest.mark.parametrize("name", sorted(set(get_args(PolicyName)) - {"noop"}))
def test_a_chain_longer_than_the_cache_keeps_its_head(name: PolicyName) -> None:
    chain = list(range(20))
    assert replay([chain, chain], make_policy(name), 5, "prefix") == 5 / 40


def test_no_policy_beats_the_clairvoyant_one() -> None:
    chains = [[i, i * i % 37, i * 7 % 23] for i in range(200)]
    best = belady(chains, 10)
    assert all(
        replay(chains, make_policy(name), 10, "chunk") <= best for name in get_args(PolicyName)
    )


@pytest.mark.parametrize("name", sorted(set(get_args(PolicyName)) - {"noop"}))
def test_a_store_hits_what_the_simulator_says(name: PolicyName) -> None:
    chance = random.Random(5)
    prompts = [[chance.randrange(400) for _ in range(chance.randrange(1, 40))] for _ in range(40)]
    # Each request ends in something new, as turns of a conversation do.
    chains = [[*dict.fromkeys(chance.choice(prompts)), 1000 + turn] for turn in range(400)]
    hits = 0

    async def serve() -> None:
        nonlocal hits
        config = L1Config(
            capacity=50 * 64,
            alignment_bytes=64,
            overflow=0,
            trigger_watermark=1.0,
            eviction_ratio=0.0,
            eviction_policy=name,
        )
        async with TieredStore(config) as store:
            for chain in chains:
                keys = [f"{chunk}" for chunk in chain]
                with await store.get_many(keys) as results:
                    missing = [result.key for result in results if result.object is None]
                hits += len(keys) - len(missing)
                assert all(result.ok for result in await store.put_many((k, b"") for k in missing))

    anyio.run(serve)
    assert hits / sum(map(len, chains)) == replay(chains, make_policy(name), 50, "chunk")


@pytest.mark.parametrize(
    "arguments",
    [["--policy", "lur"], ["--capacity", "0"], ["--capacity", "101"], ["--capacity", "x"]],
)
def test_a_wrong_argument_is_refused(
    textbook: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(textbook), *arguments])
    assert arguments[0] in capsys.readouterr().err


def test_a_file_that_is_no_trace_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("[1, 2]\n")
    with pytest.raises(SystemExit):
        main([str(trace)])
    assert f"{trace}:1:" in capsys.readouterr().err


def test_it_runs_as_a_script_and_prints_a_table(textbook: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks/simulate.py"),
        str(textbook),
        "--policy",
        "lru,default",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "12 requests, 12 accesses, 5 distinct, prefix hits" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        "policy",
        "lru",
        "default",
        "min",
    ]
