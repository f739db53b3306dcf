"""Options that commands have in common, and how an answer for programs is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

__all__ = ["as_json", "config_file", "print_json", "tier_names"]

ENVIRONMENT: Final = "TIEREDKV_CONFIG"

config_file = click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar=ENVIRONMENT,
    help=f"Configuration: JSON, TOML or YAML.  [default: ${ENVIRONMENT}]",
)

tier_names = click.option(
    "--tier", "tiers", metavar="NAME", multiple=True, help="Only this tier; may be given again."
)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)


def print_json(document: Any) -> None:
    """Print a document."""
    click.echo(json.dumps(document, indent=2))
