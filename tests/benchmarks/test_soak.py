"""A little of everything at once: no wrong byte, nothing left behind; more in ``nox -s soak``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network


def test_all_backends_at_work_while_they_fail() -> None:
    run("2000")


@pytest.mark.soak
@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("writing", [(), ("--write-back",)])
@pytest.mark.parametrize("integrity", ["checksum", "size"])
def test_on_every_loop_in_every_mode(loop: str, writing: tuple[str, ...], integrity: str) -> None:
    run("10000", "--loop", loop, "--integrity", integrity, *writing)


def run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks.soak", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    assert "0 wrong; 0 leases, threads, descriptors, clients left behind" in done.stdout
    assert "server killed" in done.stdout
