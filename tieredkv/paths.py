"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path

from tieredkv.errors import ConfigError

__all__ = ["home_expanded"]


def home_expanded(value: str | os.PathLike[str], *, field: str) -> Path:
    """Return a path with ``~`` replaced by the home directory.

    Raises:
        ConfigError: There is no such user.
    """
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ConfigError(f"{field}={str(value)!r}: there is no such user: write it out") from None
