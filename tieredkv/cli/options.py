"""Options that commands have in common, and how an answer for programs is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

__all__ = ["as_json", "config_file", "print_json", "tier_names"]

ENVIRONMENT: Final = "TIEREDKV_CONFIG"

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def config_file(command: CommandT) -> CommandT:
    """Give a command ``--config FILE``."""
    return click.option(
        "--config",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=ENVIRONMENT,
        help=f"Configuration: JSON, TOML or YAML.  [default: ${ENVIRONMENT}]",
    )(command)


def tier_names(command: CommandT) -> CommandT:
    """Give a command ``--tier NAME``, any number of times."""
    return click.option(
        "--tier", "tiers", metavar="NAME", multiple=True, help="Only this tier; may be given again."
    )(command)


def as_json(command: CommandT) -> CommandT:
    """Give a command ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
    )(command)


def print_json(document: Any) -> None:
    """Print a document."""
    click.echo(json.dumps(document, indent=2))
