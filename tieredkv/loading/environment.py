"""``${NAME}`` in the texts of a configuration: what the environment says, and where it went."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tieredkv.errors import ConfigError

__all__ = ["Expanded", "expand", "joined"]

_MAX_DEPTH: Final = 16
_MAX_VALUES: Final = 10_000
_REFERENCE: Final = re.compile(r"\$(\$\{)|\$\{([^{}]*)(\})?")
_PLAIN: Final = re.compile(r"[\w.-]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def joined(path: str, name: str) -> str:
    """Return the place of a field of what is at `path`; empty for the whole."""
    if not _PLAIN.fullmatch(name):
        return f"{path or 'configuration'}[{name!r:.80}]"
    return f"{path}.{name}" if path else name


class Expanded(str):
    """A text with parts from the environment; whoever shows it shows `raw`.

    Attributes:
        raw: The text as it was written.
        parts: Variable → what it held.
    """

    raw: str
    parts: Mapping[str, str]

    __slots__ = ("parts", "raw")

    def __repr__(self) -> str:
        return repr(self.raw)


class _Expansion:
    """One walk through a configuration."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._count = 0

    def walk(self, value: object, path: str, depth: int = 0) -> Any:
        # YAML's references make small files of any number of values, even infinitely many.
        self._count += 1
        if depth > _MAX_DEPTH or self._count > _MAX_VALUES:
            raise ConfigError(
                f"{path or 'configuration'} is nested too deeply, or the whole is too large: at "
                f"most {_MAX_DEPTH} levels and {_MAX_VALUES} values"
            )
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Mapping):
            result = {}
            for name, item in value.items():
                if not isinstance(name, str):
                    raise ConfigError(
                        f"{path or 'configuration'} has a field {name!r:.40}: names are texts"
                    )
                result[name] = self.walk(item, joined(path, name), depth + 1)
            return result
        if isinstance(value, list | tuple):
            return [self.walk(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        return value

    def _text(self, text: str, path: str) -> str:
        if "${" not in text:
            return text
        parts: dict[str, str] = {}

        def replace(found: re.Match[str]) -> str:
            escaped, name, end = found.groups()
            if escaped:
                return "${"
            if not end or not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{path} has a '${{' without the name of a variable: write ${{NAME}}, or $${{ "
                    "for the characters themselves"
                )
            if name not in self._environment:
                raise ConfigError(f"{path}: the environment variable {name} is not set: set it")
            parts[name] = self._environment[name]
            return parts[name]

        result = Expanded(_REFERENCE.sub(replace, text))
        result.raw, result.parts = text, parts
        return result if parts else str.__str__(result)


def expand(value: object, environment: Mapping[str, str]) -> Any:
    """Return plain data with every ``${NAME}`` in its texts replaced; ``$${`` stands for ``${``.

    Raises:
        ConfigError: A variable is not set, a name is no text, or it is too much of everything.
    """
    return _Expansion(environment).walk(value, "")
