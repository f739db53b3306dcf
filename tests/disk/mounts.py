"""Scripts with file systems of their own: small ones, full ones, read-only ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def in_own_mounts(script: str, root: Path) -> str:
    """Run a script with mounts of its own; skip where the machine does not let users mount."""
    enter = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*enter, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a file system in a name space of its own")
    code = f"import sys\nsys.path[:0] = {sys.path!r}\n{script}"
    run = subprocess.run(
        [*enter, sys.executable, "-W", "error", "-c", code, str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
