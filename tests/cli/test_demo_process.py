"""`python -m tieredkv demo` as a process: signals, terminals, a disk that takes nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.terminal import on_a_terminal
from tieredkv.config import MiB

ENDLESS = ("--limit", "100000", "--value-size", "64")
SHORT = ("--limit", "20", "--value-size", "4KiB", "--l1", "1MiB")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_table_so_far_and_nothing_left_behind(
    number: signal.Signals, python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    with subprocess.Popen(
        [*python, "-m", "tieredkv", "demo", *ENDLESS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("100,000 requests, ")
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (128 + number, "")
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["l1", "disk", "computed"]
    assert " of 100,000 requests in " in out
    assert list(temporary.iterdir()) == []


def test_nothing_is_left_behind_however_often_ctrl_c_is_pressed(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    with subprocess.Popen(
        [*python, "-m", "tieredkv", "demo", *ENDLESS],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("100,000 requests, ")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
    assert list(temporary.iterdir()) == []


def test_a_hangup_that_is_ignored_does_not_end_it(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    with subprocess.Popen(
        ["nohup", *python, "-m", "tieredkv", "demo", *SHORT],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("20 requests, ")
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert "20 of 20 requests in " in out


def test_ctrl_c_before_it_has_begun_is_quiet(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    os.mkfifo(trace)
    with (
        subprocess.Popen(
            [*python, "-m", "tieredkv", "demo", "--trace", str(trace)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        trace.open("wb", buffering=0) as lines,
    ):
        lines.write(b"\n" * MiB)  # more than fits in a pipe: by then it is reading
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err.strip()) == (130, "", "")
    assert list(temporary.iterdir()) == []


def test_away_from_a_terminal_there_are_no_control_characters(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "demo", *SHORT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for text in (done.stdout, done.stderr):
        assert all(character.isprintable() or character == "\n" for character in text)


def test_ascii_terminals_get_ascii(python: tuple[str, ...], environment: dict[str, str]) -> None:
    command = [*python, "-m", "tieredkv", "demo", *SHORT]
    ascii_only = environment | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=ascii_only, capture_output=True, check=True)
    assert (done.stdout + done.stderr).isascii()


def test_on_a_terminal_it_draws_while_it_runs_and_leaves_the_table(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "demo", *SHORT]
    status, drawn = on_a_terminal(command, environment | {"COLUMNS": "80", "LINES": "24"})
    assert status == 0
    picture, _, left = drawn.rpartition("\x1b[2K")  # the last line that was erased
    assert "requests" in picture
    assert "%" in picture
    assert picture.count("\x1b[?25l") == picture.count("\x1b[?25h") == 1  # the cursor is back
    assert left.count("verified") == 1
    assert "20 of 20 requests" in left


def test_a_dumb_terminal_is_not_drawn_on(
    python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "demo", *SHORT]
    status, drawn = on_a_terminal(command, environment | {"TERM": "dumb"})
    assert status == 0
    assert "\x1b" not in drawn


def test_a_disk_that_takes_nothing_is_reported_and_nothing_is_wrong(
    python: tuple[str, ...], environment: dict[str, str], temporary: Path
) -> None:
    program = (
        "import resource, sys\n"
        "from tieredkv.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        f"sys.exit(main(['demo', *{SHORT}]))"
    )
    command = [*python, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"write +failed \d", done.stdout)
    assert "Every byte of the " in done.stdout
    assert "File too large" in done.stderr
    assert list(temporary.iterdir()) == []
