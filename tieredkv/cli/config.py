"""`tieredkv config`: what a configuration file comes to, and where each value is from."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import click

from tieredkv.cli.sizes import size_text
from tieredkv.cli.tiers import configuration
from tieredkv.loading import Configuration, Setting
from tieredkv.store import TieredStore

__all__ = ["config", "heard"]

_COLUMN: Final = 48
_HIDDEN: Final = "…"


@click.command(
    epilog="Exit status: 0 the configuration works, 2 it does not. What --explain prints is TOML, "
    "and the same configuration under this library's names; secrets are left out."
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--explain", is_flag=True, help="Print every setting and where its value is from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(file: Path, *, explain: bool, as_json: bool) -> None:
    """Check a configuration FILE (JSON, TOML or YAML); nothing is connected or opened."""
    with heard() as messages:
        found = configuration(file)
    warnings = [*found.warnings, *messages]
    if as_json:
        click.echo(json.dumps(_as_json(found, warnings, explain=explain), indent=2))
        return
    remarks = [f"# warning: {warning}" for warning in warnings]
    if found.unused:
        remarks.append(f"# no effect: {', '.join(found.unused)}")
    click.echo("\n".join([f"# {file} works", *remarks]))
    if explain:
        click.echo("\n".join(["", *_as_toml(found.settings)]))


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what backends warn of while they are made, or opened, instead of printing it."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger = logging.getLogger("tieredkv")
    collectors: list[logging.Handler] = [Collector(logging.WARNING)]
    others, logger.handlers = logger.handlers, collectors
    try:
        yield messages
    finally:
        logger.handlers = others


def _as_json(
    found: Configuration[TieredStore], warnings: list[str], *, explain: bool
) -> dict[str, Any]:
    settings = [attrs.asdict(setting) for setting in found.settings]
    remarks = {"warnings": warnings, "unused": list(found.unused)}
    return {"settings": settings, **remarks} if explain else remarks


def _as_toml(settings: Sequence[Setting]) -> Iterator[str]:
    """Yield the lines of a TOML file: settings of the store, of L1, of each tier."""
    tables: dict[str, list[Setting]] = {"": []}
    for setting in settings:
        tables.setdefault(setting.path.rpartition(".")[0], []).append(setting)
    for table, members in tables.items():
        if table:
            yield ""
            yield f"[{table}]" if table == "l1" else "[[l2]]"
        for setting in members:
            yield f"{_assignment(setting):{_COLUMN}}  # {_source(setting)}"


def _assignment(setting: Setting) -> str:
    name, text = setting.path.rpartition(".")[2], _toml(setting.value)
    if setting.value is None:
        return f"# {name} is not set"
    return f"# {name} is set" if _HIDDEN in text else f"{name} = {text}"


def _source(setting: Setting) -> str:
    parts = [f"from {setting.given_as}" if setting.given_as else setting.origin]
    parts += [f"variable {name}" for name in setting.variables]
    if setting.is_size and isinstance(setting.value, int):
        parts.append(size_text(setting.value))
    return ", ".join(parts)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()
