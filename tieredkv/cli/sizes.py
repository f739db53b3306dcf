"""Sizes on the command line and in what it prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from tieredkv.config import KiB, parse_size
from tieredkv.errors import ConfigError

if TYPE_CHECKING:
    ParamTypeOfInt = click.ParamType[int]
else:
    ParamTypeOfInt = click.ParamType

__all__ = ["SIZE", "size_text"]


class _Size(ParamTypeOfInt):
    """A number of bytes: digits alone, or a size string as in `tieredkv.config.parse_size`."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number of bytes.

        Raises:
            click.UsageError: It is not a size.
        """
        field = param.opts[0] if param is not None else self.name
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,99}", value):
            value = int(value)
        try:
            return parse_size(value, field=field)
        except ConfigError as error:
            raise click.UsageError(str(error), ctx) from None


SIZE = _Size()


def size_text(nbytes: int) -> str:
    """Return a size with three or four digits, for people: ``"64 KiB"``, ``"1.32 GiB"``."""
    size, units = float(nbytes), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1000 and unit != "TiB":
        size, unit = size / KiB, next(units)
    text = f"{size:.{2 if size < 10 else 1 if size < 100 else 0}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
