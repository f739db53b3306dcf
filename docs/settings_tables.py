"""The directive ``settings``: a table of what may be configured, read off a constructor."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import attrs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tieredkv.loading.schema import Field, fields_of, tag_of

FIELD = re.compile(r" {4}(\w+): (.*)")
CONTINUED = re.compile(r" {8}(\S.*)")


def meanings(target: Any) -> dict[str, str]:
    """Return what the docstring says of each argument."""
    text = inspect.getdoc(target if attrs.has(target) else target.__init__) or ""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if field := FIELD.fullmatch(line):
            name = field[1]
            found[name] = field[2]
        elif (more := CONTINUED.fullmatch(line)) and name:
            found[name] += f" {more[1]}"
    return found


def shown_default(field: Field) -> str:
    """Return a default as one writes it in TOML; what is computed is told by the meaning."""
    if field.is_required:
        return "required"
    if field.default is None or field.default is attrs.NOTHING:
        return ""
    default = f'"{field.default}"' if isinstance(field.default, str) else str(field.default).lower()
    return f"`{default}`"


def table(target: Callable[..., Any]) -> str:
    """Return the settings of a class as a table in Markdown."""
    told = meanings(target)
    rows = ["| field | default | meaning |", "|---|---|---|"]
    for name, field in fields_of(target, without=("l1", "l2")).items():
        meaning = told[name].replace("``", "`").replace("|", "\\|")
        rows.append(f"| `{name}` | {shown_default(field)} | {meaning} |")
    return "\n".join(rows)


def tables(target: Callable[..., Any]) -> str:
    """Return the table of a class, and of each class that one of its settings may be."""
    parts = [table(target)]
    for name, field in fields_of(target, without=("l1", "l2")).items():
        for kind in field.arms:
            if isinstance(kind, type) and attrs.has(kind):
                parts += [f'`{name}`, a mapping (`type = "{tag_of(kind)}"`):', table(kind)]
    return "\n\n".join(parts)


class SettingsDirective(SphinxDirective):
    """``{settings} tieredkv.backends.DiskBackend``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        module, _, name = self.arguments[0].rpartition(".")
        return self.parse_text_to_nodes(tables(getattr(importlib.import_module(module), name)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("settings", SettingsDirective)
    return {"parallel_read_safe": True}
