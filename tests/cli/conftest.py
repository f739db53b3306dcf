"""Child processes that run the command line as a user does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tieredkv.cli import main
from tieredkv.testing import hub


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory where the demo makes its own."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


@pytest.fixture
def tieredkv(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command line and return its exit status and what it wrote to stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def environment(temporary: Path) -> dict[str, str]:
    """The environment of a child process: a plain terminal of 80 columns."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in {"COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE"}
    }
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, plain.get("PYTHONPATH"))))
    return plain | {"PYTHONPATH": path, "TERM": "xterm-256color", "TMPDIR": str(temporary)}


@pytest.fixture(scope="module")
def local_hub() -> Iterator[hub.LocalHub]:
    """A Hub in a process of its own."""
    with hub.start(process=True) as running:
        yield running


@pytest.fixture
def hub_environment(
    environment: dict[str, str], tmp_path: Path, local_hub: hub.LocalHub
) -> dict[str, str]:
    """The same environment, in which Hugging Face's packages know that Hub's user and no other."""
    environment |= {
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": local_hub.token,
        "NO_PROXY": "127.0.0.1",
        "RUST_LOG": "off",
    }
    return environment


@pytest.fixture
def python() -> tuple[str, ...]:
    """How a child process starts, with warnings as errors."""
    return sys.executable, "-W", "error"
