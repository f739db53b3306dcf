"""`tieredkv demo`, in this process: what it prints, and how it ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

import tieredkv.cli.demo as demo_module
import tieredkv.cli.media as media_module
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend, WriteRequest
from tieredkv.config import KiB
from tieredkv.results import WriteOutcome

CommandLine: TypeAlias = Callable[..., tuple[int, str, str]]

TRACE = Path(__file__).parent / "traces" / "chat.jsonl.gz"
VALUE_BYTES = 32 * KiB
SMALL = ("--l1", "1MiB", "--value-size", "32KiB")


def test_the_chat_is_served_by_both_tiers_and_verified(tieredkv: CommandLine) -> None:
    status, out, _ = tieredkv("demo", *SMALL, "--limit", "60", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["is_right"]
    assert report["requests"] == report["planned_requests"] == 60
    assert [row["tier"] for row in report["rows"]] == ["l1", "disk", "computed"]
    assert sum(row["chunks"] for row in report["rows"]) == report["chunks"]
    for row in report["rows"][:2]:
        assert row["chunks"] > 0
        assert row["verified_bytes"] == row["nbytes"] == row["chunks"] * report["value_bytes"]
        assert row["objects"] > 0
        assert row["stored_bytes"] >= row["objects"] * report["value_bytes"]
        assert 0 < row["p50_s"] <= row["p99_s"]
        assert row["bytes_per_s"] > 0


def test_a_trace_is_replayed(tieredkv: CommandLine) -> None:
    status, out, _ = tieredkv("demo", *SMALL, "--trace", str(TRACE), "--json")
    assert (status, json.loads(out)["requests"]) == (0, 40)
    assert json.loads(out)["rows"][1]["chunks"] > 0
    status, out, _ = tieredkv("demo", *SMALL, "--trace", str(TRACE), "--limit", "7", "--json")
    assert (status, json.loads(out)["requests"]) == (0, 7)


def test_another_seed_is_another_chat(tieredkv: CommandLine) -> None:
    first, again, other = (
        json.loads(tieredkv("demo", *SMALL, "--limit", "9", "--seed", seed, "--json")[1])["chunks"]
        for seed in ("1", "1", "2")
    )
    assert first == again != other


def test_the_table_is_plain_text_of_80_columns(
    tieredkv: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    status, out, err = tieredkv("demo", *SMALL, "--limit", "30")
    assert status == 0
    head, _, *tiers = out.splitlines()[:5]
    titles = "tier objects bytes chunks ratio GB/s p50 ms p99 ms verified"
    assert head.split() == titles.split()
    assert [line.split()[0] for line in tiers] == ["l1", "disk", "computed"]
    assert "Every byte of the " in out.splitlines()[-1]
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert all(character.isprintable() or character == "\n" for character in out + err)


def test_nothing_found_is_not_called_verified(tieredkv: CommandLine) -> None:
    status, out, _ = tieredkv("demo", *SMALL, "--limit", "1")
    assert status == 0
    assert out.splitlines()[-1] == "No chunk was found, so there was nothing to verify."


def test_the_temporary_directory_is_removed(tieredkv: CommandLine, temporary: Path) -> None:
    assert tieredkv("demo", *SMALL, "--limit", "5")[0] == 0
    assert list(temporary.iterdir()) == []


# -- what goes wrong ------------------------------------------------------------------------------


class RottingDisk(DiskBackend):
    """Flips one bit of each value after it was written for the first time."""

    def __init__(self, path: str, *, capacity: int, name: str) -> None:
        super().__init__(path, capacity=capacity, name=name)
        self.rotten: set[Path] = set()

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        outcomes = await super().write_many(requests)
        files = [file for file in self.path.rglob("*") if file.is_file()]
        values = {file for file in files if file.stat().st_size >= VALUE_BYTES}
        for file in values - self.rotten:
            content = bytearray(file.read_bytes())
            content[1000] ^= 1
            file.write_bytes(content)
            self.rotten.add(file)
        return outcomes


def test_wrong_bytes_on_disk_are_noticed_and_the_exit_status_is_1(
    tieredkv: CommandLine, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr(media_module, "DiskBackend", RottingDisk)
    status, out, _ = tieredkv("demo", *SMALL, "--trace", str(TRACE), "--json")
    report = json.loads(out)
    assert status == 1
    assert not report["is_right"]
    assert report["corrupt_copies"] > 0
    assert report["wrong_values"] == 0
    assert list(temporary.iterdir()) == []
    out = tieredkv("demo", *SMALL, "--trace", str(TRACE))[1]
    assert "Copies with wrong bytes, which the store did not hand out: " in out


def test_wrong_bytes_that_the_store_hands_out_are_noticed_and_the_exit_status_is_1(
    tieredkv: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_module, "DiskBackend", RottingDisk)
    monkeypatch.setattr(demo_module, "TieredStore", partial(TieredStore, integrity="size"))
    status, out, _ = tieredkv("demo", *SMALL, "--trace", str(TRACE))
    assert status == 1
    assert "WRONG values, which it did hand out: " in out
    assert " 1 of 32768 bytes are wrong, the first is byte 1000" in out


def test_a_disk_that_cannot_be_opened_is_one_line_and_exit_status_1(
    tieredkv: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(
        media_module, "DiskBackend", lambda path, **_: DiskBackend(tmp_path / "file" / "below")
    )
    status, out, err = tieredkv("demo", "--limit", "1")
    assert (status, out) == (1, "")
    assert err.startswith("tieredkv: disk: open: Not a directory")
    assert err.count("\n") == 1


def test_a_disk_without_room_for_the_tier_is_refused_before_anything_runs(
    tieredkv: CommandLine, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    usage = shutil.disk_usage(temporary)._replace(free=300_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    status, out, err = tieredkv("demo", *SMALL, "--limit", "5")
    assert (status, out) == (2, "")
    assert f"293 KiB are free in {temporary}: lower --l1" in err
    assert err.count("\n") == 1
    assert list(temporary.iterdir()) == []


def test_no_place_for_a_temporary_directory_is_one_line(
    tieredkv: CommandLine, temporary: Path
) -> None:
    temporary.rmdir()
    status, out, err = tieredkv("demo", "--limit", "1")
    assert (status, out) == (1, "")
    assert err == "tieredkv: no temporary directory: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--valu-size", "1"], "No such option"),
        (["--value-size", "4G"], "--value-size='4G' has two readings: write '4GiB' (4294967296 "),
        (["--value-size", "4GiB"], "--l1 64 MiB is too small for values of 4 GiB: give it at "),
        (["--value-size", "1GiB", "--l1", "8GiB"], "--value-size 1 GiB is too large: give it at "),
        (["--value-size", "15"], "--value-size 15: a value that can be told from others has at "),
        (["--value-size", "9" * 99], "--value-size is an integer of 329 bits, far out of range"),
        (["--value-size", "many"], "--value-size='many' is not a size: "),
        (["--l1", "1KiB"], "--l1 1 KiB is too small for values of 64 KiB: give it at least 1 MiB"),
        (["--l1", "-1"], "--l1='-1' is not a size: "),
        (["--limit", "0"], "Invalid value for '--limit': 0 is not in the range x>=1."),
        (["--seed", "x"], "Invalid value for '--seed': 'x' is not a valid integer."),
        (["--trace", "absent"], "absent: No such file or directory"),
        (["--trace", __file__], f"{__file__}:1: not JSON: "),
        (["--trace"], "Option '--trace' requires an argument."),
        (["more"], "Got unexpected extra argument (more)"),
    ],
)
def test_a_usage_mistake_is_one_line_and_exit_status_2(
    tieredkv: CommandLine, arguments: list[str], complaint: str
) -> None:
    status, out, err = tieredkv("demo", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("tieredkv")
    assert f": {complaint}" in err
    assert err.count("\n") == 1
