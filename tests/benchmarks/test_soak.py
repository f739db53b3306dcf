"""A little of everything at once: no wrong byte, nothing left behind; more in ``nox -s soak``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network


def test_all_backends_at_work_while_they_fail() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks.soak", "2000"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    assert "0 wrong; 0 leases, threads, descriptors, clients left behind" in done.stdout
    assert "server killed" in done.stdout
