"""The examples of a page, and how they are run: one after the other, as one session at a prompt.

A block of ``python`` that a block of ``text`` follows has to print that.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_BLOCK: Final = re.compile(
    r"^```python\n(?P<source>.*?)^```\n(\n*^```text\n(?P<printed>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


class Example(NamedTuple):
    """A block of code, the line of the page on which it begins, and what it prints."""

    source: str
    line: int
    printed: str | None


def examples(text: str) -> list[Example]:
    return [
        Example(block["source"], text.count("\n", 0, block.start("source")), block["printed"])
        for block in _BLOCK.finditer(text)
    ]


async def run(page: Path, names: dict[str, Any], here: Mapping[str, str]) -> None:
    """Run the examples of a page in one namespace, with some of its texts replaced."""
    text = page.read_text()
    for there, mine in here.items():
        assert there in text, f"{page.name} does not hold {there}"
        text = text.replace(there, mine)
    for source, line, printed in examples(text):
        code = compile(
            "\n" * line + source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        with redirect_stdout(io.StringIO()) as output:
            waiting = eval(code, names)
            if inspect.isawaitable(waiting):
                await waiting
        if printed is not None:
            told = f"{page.name}, line {line}, prints:\n{output.getvalue()}"
            assert output.getvalue() == printed, told
