"""`tieredkv bench`: what it measures, and that it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tieredkv.testing.valkey import ValkeyServer

pytestmark = pytest.mark.network

Run: TypeAlias = Callable[..., tuple[int, str, str]]

FEW = ("--value-size", "64KiB", "--count", "3", "--rounds", "2")


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def config(tmp_path: Path, server: ValkeyServer) -> Path:
    file = tmp_path / "tiers.json"
    tiers = [
        {"type": "disk", "path": str(tmp_path / "place" / "disk")},
        {"type": "valkey", "address": server.url, "key_prefix": "kv"},
    ]
    file.write_text(json.dumps({"l1": "1MiB", "l2": tiers}))
    return file


@pytest.fixture
def command(python: tuple[str, ...], config: Path) -> list[str]:
    return [*python, "-m", "tieredkv", "bench", *FEW, "--config", str(config)]


def test_each_tier_is_compared_with_a_bare_loop_and_left_as_it_was(
    command: list[str], environment: dict[str, str], server: ValkeyServer, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert (report["value_bytes"], report["count"], report["rounds"]) == (65536, 3, 2)
    assert report["failed"] == {}
    rows = [(row["tier"], row["operation"]) for row in report["rows"]]
    assert rows == [(tier, way) for tier in ("l1", "disk", "valkey") for way in ("write", "read")]
    for row in report["rows"]:
        assert min(row["bytes_per_s"], row["bare_bytes_per_s"], row["ratio"]) > 0
    assert server.command("DBSIZE") == 0
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["disk"]
    assert not list(tmp_path.rglob("*bench*"))


def test_people_get_a_table(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    head, _, *rows = done.stdout.splitlines()
    assert head.split() == ["tier", "operation", "MB/s", "bare", "MB/s", "ratio"]
    assert len(rows) == 7
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_tier_that_is_down_is_named_and_the_others_are_measured(
    command: list[str], config: Path, environment: dict[str, str], server: ValkeyServer
) -> None:
    tiers = json.loads(config.read_text())
    tiers["l2"].reverse()
    config.write_text(json.dumps(tiers))
    server.kill()
    done = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("tieredkv: valkey: open: there is no connection")
    assert done.stderr.count("\n") == 1
    report = json.loads(done.stdout)
    assert [row["tier"] for row in report["rows"]] == ["l1", "l1", "disk", "disk"]
    assert list(report["failed"]) == ["valkey"]
    assert f"tieredkv: {report['failed']['valkey']}\n" == done.stderr


def test_values_without_bytes_are_refused(tieredkv: Run, config: Path) -> None:
    status, out, err = tieredkv("bench", "--value-size", "0", "--config", str(config))
    assert (status, out) == (2, "")
    assert err == "tieredkv bench: --value-size 0: give it at least 1 byte\n"


def test_more_than_memory_holds_is_refused(tieredkv: Run, config: Path) -> None:
    status, out, err = tieredkv("bench", "--value-size", "1TiB", "--config", str(config))
    assert (status, out) == (2, "")
    assert err.startswith("tieredkv bench: the values need 64 TiB of memory, but ")
    assert err.count("\n") == 1
