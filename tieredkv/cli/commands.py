"""The commands, and how each ends: exit statuses, and one line instead of a traceback."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

import tieredkv
from tieredkv.cli.bench import bench
from tieredkv.cli.config import config
from tieredkv.cli.demo import demo
from tieredkv.cli.doctor import doctor
from tieredkv.cli.sweeps import copy, verify
from tieredkv.cli.values import get, ls, put, rm, stat
from tieredkv.errors import ConfigError, MissingDependencyError, TieredKVError

__all__ = ["run"]

USAGE_MISTAKE: Final = click.UsageError.exit_code
INTERRUPTED: Final = 128 + signal.SIGINT


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog="Exit status: 0 done, 1 failed or wrong bytes found, 2 usage mistake, 130 Ctrl-C.",
)
@click.version_option(tieredkv.__version__, message="tieredkv %(version)s")
@click.pass_context
def group(context: click.Context) -> None:
    """Tiered storage for large, recomputable values."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (bench, config, copy, demo, doctor, get, ls, put, rm, stat, verify):
    group.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; see `tieredkv.cli.main`."""
    try:
        with _warnings_on_stderr():
            status = group.main(arguments, prog_name="tieredkv", standalone_mode=False)
    except click.Abort:  # Ctrl-C where the command does not handle it itself
        return INTERRUPTED
    except click.ClickException as error:
        command = getattr(error, "ctx", None)
        _complain(command.command_path if command else "tieredkv", error.format_message())
        return error.exit_code
    except TieredKVError as error:
        _complain("tieredkv", str(error))
        return USAGE_MISTAKE if isinstance(error, ConfigError | MissingDependencyError) else 1
    except MemoryError:
        _complain("tieredkv", "the system has not so much memory")
        return 1
    except OSError as error:
        if error.filename is not None:
            raise
        _complain(
            "tieredkv", f"standard output: {error.strerror or error}"
        )  # tiers raise TierError
        return 1
    return int(status or 0)


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print what the library warns of, as Python does where nobody has set logging up."""
    logger, handler = logging.getLogger("tieredkv"), logging.lastResort
    if handler is not None:
        logger.addHandler(handler)
    try:
        yield
    finally:
        if handler is not None:
            logger.removeHandler(handler)


def _complain(command: str, message: str) -> None:
    line = " ".join(message.split())  # whatever a message holds, it is one line
    click.echo(f"{command}: {line}", err=True)
