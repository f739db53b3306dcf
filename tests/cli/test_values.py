"""`tieredkv ls`, `stat`, `get`, `put`, `rm` over two directories."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tieredkv import ObjectKey, TieredStore
from tieredkv.backends import DiskBackend

Run: TypeAlias = Callable[..., tuple[int, str, str]]

KEY = "llama@000000ff@0@00010203@user-42"
VALUE = bytes(range(256)) * 16


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "tiers.json"
    specs = [
        {"type": "disk", "name": name, "path": str(tmp_path / name)} for name in ("fast", "cold")
    ]
    file.write_text(json.dumps({"l1": "1MiB", "l2": specs}))
    monkeypatch.setenv("TIEREDKV_CONFIG", str(file))
    return file


@pytest.fixture
def value(tmp_path: Path) -> str:
    file = tmp_path / "value"
    file.write_bytes(VALUE)
    return str(file)


def stored_in(tmp_path: Path, tier: str) -> list[Path]:
    return [file for file in (tmp_path / tier).rglob("*") if file.stat().st_size == len(VALUE) + 64]


def test_a_value_is_put_listed_found_got_and_removed(
    tieredkv: Run, value: str, tmp_path: Path
) -> None:
    assert tieredkv("put", KEY, value) == (0, f"fast\tstored\t{KEY}\ncold\tstored\t{KEY}\n", "")
    nbytes = len(VALUE) + 64
    assert tieredkv("ls") == (0, f"fast\t{nbytes}\t{KEY}\ncold\t{nbytes}\t{KEY}\n", "")
    assert tieredkv("stat", KEY, "--tier", "cold") == (0, f"cold\t4.06 KiB\t{KEY}\n", "")
    out = tmp_path / "out"
    assert tieredkv("get", KEY, "--output", str(out)) == (0, "", "")
    assert out.read_bytes() == VALUE
    assert tieredkv("rm", KEY, "other")[:2] == (
        0,
        f"fast\tdeleted\t{KEY}\nfast\tabsent\tother\ncold\tdeleted\t{KEY}\ncold\tabsent\tother\n",
    )
    assert tieredkv("ls") == (0, "", "")


def test_every_command_has_an_answer_for_programs(
    tieredkv: Run, value: str, tmp_path: Path
) -> None:
    def document(*arguments: str) -> object:
        return json.loads(tieredkv(*arguments, "--json")[1])

    assert document("ls") == []
    stored = {"status": "stored", "detail": ""}
    assert document("put", KEY, value) == {
        "name": KEY,
        "nbytes": len(VALUE),
        "tiers": {"fast": stored, "cold": stored},
    }
    nbytes = len(VALUE) + 64
    assert document("ls", "--prefix", "llama") == [
        {"tier": tier, "stored_bytes": nbytes, "name": KEY} for tier in ("fast", "cold")
    ]
    assert document("stat", KEY, "--tier", "fast") == [
        {"tier": "fast", "name": KEY, "status": "hit", "stored_bytes": nbytes, "error": ""}
    ]
    out = str(tmp_path / "out")
    assert document("get", KEY, "-o", out) == {
        "tier": "fast",
        "name": KEY,
        "nbytes": len(VALUE),
        "file": out,
    }
    assert document("rm", KEY, "--tier", "cold") == [
        {"tier": "cold", "name": KEY, "status": "deleted", "error": ""}
    ]


def test_standard_input_and_output_are_files_too(
    tieredkv: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    assert tieredkv("put", "key", "-")[0] == 0
    assert tieredkv("get", "key") == (0, "text", "")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_store_reads_what_was_put(tmp_path: Path, value: str, configured: Path) -> None:
    subprocess.run([sys.executable, "-m", "tieredkv", "put", KEY, value], check=True)
    async with TieredStore("1MiB", [DiskBackend(tmp_path / "fast")]) as store:
        assert await store.get_bytes(ObjectKey.parse(KEY)) == VALUE


def test_a_wrong_copy_is_passed_over_and_stays(tieredkv: Run, value: str, tmp_path: Path) -> None:
    tieredkv("put", KEY, value)
    (file,) = stored_in(tmp_path, "fast")
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    out = str(tmp_path / "out")
    status, said, err = tieredkv("get", KEY, "-o", out, "--json")
    assert (status, json.loads(said)["tier"], err) == (0, "cold", "fast: corrupt\n")
    assert file.exists()


def test_what_has_expired_is_not_got(
    tieredkv: Run, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tieredkv("put", KEY, value, "--ttl", "60")[0] == 0
    monkeypatch.setattr("tieredkv.frames.time.time_ns", lambda: 2**62)
    status, out, err = tieredkv("get", KEY)
    assert (status, out) == (1, "")
    assert err == (
        f"fast: miss expired\ncold: miss expired\ntieredkv: {KEY}: no tier has a whole value\n"
    )


def test_a_key_that_no_tier_holds_is_exit_status_1(tieredkv: Run) -> None:
    assert tieredkv("stat", "key") == (1, "fast\tmiss\tkey\ncold\tmiss\tkey\n", "")
    assert tieredkv("get", "key") == (1, "", "tieredkv: key: no tier has a whole value\n")


def test_a_tier_that_cannot_be_opened_is_one_line_and_the_others_are_looked_at(
    tieredkv: Run, tmp_path: Path
) -> None:
    (tmp_path / "cold").touch()
    value, copy = tmp_path / "value.bin", tmp_path / "copy.bin"
    value.write_bytes(b"value")
    status, out, err = tieredkv("put", "key", str(value))
    assert (status, err) == (1, "")
    assert out.startswith("fast\tstored\tkey\ncold\tfailed (cold: open: File exists")
    status, out, err = tieredkv("ls")
    assert (status, out) == (1, "fast\t69\tkey\n")
    assert err.startswith("tieredkv: cold: open: File exists")
    assert err.count("\n") == 1
    status, out, err = tieredkv("stat", "key")
    assert (status, out.count("cold: open: File exists"), err) == (0, 1, "")
    assert tieredkv("get", "key", "-o", str(copy))[::2] == (0, "")
    assert copy.read_bytes() == b"value"
    status, _, err = tieredkv("get", "none", "-o", str(copy))
    assert status == 1
    assert err.startswith("tieredkv: cold: open: ")
    assert err.endswith("none: no tier has a whole value\n")
    status, out, err = tieredkv("rm", "key")
    assert (status, err) == (1, "")
    assert out.startswith("fast\tdeleted\tkey\ncold\tcold: open: File exists")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ls", "--tier", "hot"], "there is no tier 'hot': fast, cold"),
        (["ls", "--config", "absent.toml"], "absent.toml"),
        (["stat"], "Missing argument 'KEY...'."),
        (
            ["get", "a@b"],
            "'a@b' is not <model>@<kv_rank:08x>@<group:x>@<hash hex>[@<salt>]; a key ",
        ),
        (["get", "key", "--json"], "--json needs --output FILE: "),
        (["put", "key", "absent"], "Invalid value for 'FILE': 'absent': No such file or directory"),
        (["put", "key", "-", "--ttl", "0"], "--ttl=0.0 must be above 0 seconds"),
        (["put", "key", "-", "--ttl", "nan"], "--ttl=nan must be finite"),
    ],
)
def test_a_usage_mistake_is_one_line_and_exit_status_2(
    tieredkv: Run, arguments: list[str], complaint: str
) -> None:
    status, out, err = tieredkv(*arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_without_a_configuration_it_says_how_to_give_one(
    tieredkv: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIEREDKV_CONFIG")
    assert tieredkv("ls") == (
        2,
        "",
        "tieredkv ls: no configuration: give --config FILE or set TIEREDKV_CONFIG\n",
    )


def test_an_output_that_cannot_be_written_is_one_line_and_leaves_nothing(
    tieredkv: Run, value: str, tmp_path: Path
) -> None:
    tieredkv("put", "key", value)
    before = set(tmp_path.iterdir())
    output = tmp_path / "fast"
    assert tieredkv("get", "key", "-o", str(output)) == (
        1,
        "",
        f"tieredkv: {output}: Is a directory\n",
    )
    assert set(tmp_path.iterdir()) == before


def test_a_reader_that_goes_away_is_no_traceback(
    value: str, python: tuple[str, ...], environment: dict[str, str], configured: Path
) -> None:
    command = [*python, "-m", "tieredkv"]
    environment |= {"TIEREDKV_CONFIG": str(configured)}
    subprocess.run([*command, "put", "key", value], env=environment, check=True)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*command, "ls"], env=environment, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
