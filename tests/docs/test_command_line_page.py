"""The page on the command line: its commands and options exist, and all commands are on it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tieredkv import TieredStore
from tieredkv.cli.commands import group
from tieredkv.loading import load

PAGE = (Path(__file__).parents[2] / "docs/how-to/command-line.md").read_text()
LINES = re.findall(r"^\$ tieredkv (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_page_is_understood(line: str, tmp_path: Path) -> None:
    name, *arguments = shlex.split(line, comments=True)
    (tmp_path / "value.bin").touch()
    arguments = [word.replace("value.bin", str(tmp_path / "value.bin")) for word in arguments]
    with group.commands[name].make_context(name, arguments):
        pass


def test_every_command_is_told_and_answers_programs() -> None:
    for name, command in group.commands.items():
        assert re.search(rf"tieredkv {name}\b|`{name}`", PAGE), name
        assert any("--json" in option.opts for option in command.params), name


def test_the_configuration_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "tiers.toml"
    file.write_text(text)
    assert load(file, TieredStore).warnings == ()
