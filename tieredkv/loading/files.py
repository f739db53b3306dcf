"""Configuration files: JSON, TOML and YAML as plain data, without anything said twice."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tieredkv.errors import ConfigError, MissingDependencyError

__all__ = ["read_file"]


def read_file(path: str | os.PathLike[str]) -> object:
    """Return what a configuration file says; its format is told by its name's ending.

    Raises:
        ConfigError: The file cannot be read, or is not of its format.
        MissingDependencyError: It is YAML, and PyYAML is not installed.
    """
    file = Path(path)
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise ConfigError(f"{file}: the name must end in one of {', '.join(_READERS)}")
    try:
        text = file.expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except RuntimeError:
        raise ConfigError(f"{file}: there is no such user") from None
    except ValueError as error:  # not UTF-8, or a name with NUL
        raise ConfigError(f"{file}: cannot be read as UTF-8 text: {type(error).__name__}") from None
    try:
        return read(text)
    except RecursionError:
        raise ConfigError(f"{file}: it is nested too deeply") from None
    except ValueError as error:
        kind = file.suffix[1:].upper()
        raise ConfigError(f"{file}: not valid {kind}: {error}") from None


def _json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:  # its text does not repeat the document
        raise ValueError(error) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one object: remove one")
    return result


def _yaml(text: str) -> object:
    try:
        from tieredkv.loading.yaml_files import parse  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise MissingDependencyError(
            "a YAML configuration needs PyYAML: pip install 'tieredkv[yaml]'"
        ) from None
    return parse(text)


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".json": _json,
    ".toml": tomllib.loads,
    ".yaml": _yaml,
    ".yml": _yaml,
}
