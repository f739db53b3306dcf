"""The command line as a whole: how it starts, and how it ends."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import tieredkv as package
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.cli import main
from tieredkv.config import GiB


def test_without_a_command_it_says_what_there_is(
    tieredkv: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, err = tieredkv()
    assert (status, err) == (0, "")
    assert "demo Replay requests" in " ".join(out.split())
    assert tieredkv("--help") == (0, out, "")


def test_a_misspelt_command_is_one_line_and_exit_status_2(
    tieredkv: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, err = tieredkv("dmo")
    assert (status, out) == (2, "")
    assert err.startswith("tieredkv: No such command 'dmo'")
    assert err.count("\n") == 1


def test_it_runs_as_a_module(python: tuple[str, ...], environment: dict[str, str]) -> None:
    command = [*python, "-m", "tieredkv", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"tieredkv {package.__version__}\n", "")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    missing: str, python: tuple[str, ...], environment: dict[str, str]
) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "runpy.run_module('tieredkv', run_name='__main__')"
    )
    done = subprocess.run(
        [*python, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tieredkv: the command line needs {missing}: pip install 'tieredkv[cli]'\n"
    )


def test_ctrl_c_while_it_is_imported_is_quiet(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    program = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "tieredkv.cli.doctor":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_module("tieredkv", run_name="__main__")
"""
    done = subprocess.run(
        [*python, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_defect_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tieredkv.cli.commands", None)
    with pytest.raises(ModuleNotFoundError, match=r"tieredkv\.cli\.commands"):
        main([])


@pytest.fixture
def configured(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment with a configuration: a directory that holds a value."""
    file = tmp_path / "tiers.json"
    path = str(tmp_path / "disk")
    file.write_text(json.dumps({"l1": "1MiB", "l2": [{"type": "disk", "path": path}]}))

    async def put() -> None:
        async with TieredStore("1MiB", [DiskBackend(path)]) as store:
            await store.put("key", b"value")

    anyio.run(put)
    return environment | {"TIEREDKV_CONFIG": str(file)}


@pytest.mark.parametrize(
    "arguments",
    [("ls",), ("get", "key"), ("verify",), ("bench", "--value-size", "1KiB", "--rounds", "1")],
)
def test_an_output_that_takes_nothing_is_one_line(
    arguments: tuple[str, ...], python: tuple[str, ...], configured: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, env=configured, stdout=full, stderr=subprocess.PIPE, check=False
        )
    told = b"tieredkv: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_an_output_that_is_closed_is_one_line(
    python: tuple[str, ...], configured: dict[str, str]
) -> None:
    line = shlex.join([*python, "-m", "tieredkv", "get", "key"])
    done = subprocess.run(
        f"{line} >&-", shell=True, env=configured, stderr=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stderr) == (1, b"tieredkv: standard output is closed\n")


def test_a_file_that_memory_does_not_hold_is_one_line(
    python: tuple[str, ...], configured: dict[str, str], tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(64 * GiB)
    program = (
        "import resource, sys\n"
        "from tieredkv.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({8 * GiB}, {8 * GiB}))\n"
        f"sys.exit(main(['put', 'key', {str(huge)!r}]))"
    )
    command = [*python, "-c", program]
    done = subprocess.run(command, env=configured, capture_output=True, text=True, check=False)
    told = "tieredkv: the system has not so much memory\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)
