"""Smaller SVG files: what matplotlib repeats with every mark is said once, or left out."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["slim"]

_LEFT_OUT: Final = (
    r"(?<=\.\d\d)\d+(?=[^<>]*>)",  # within a tag: what is below a hundredth of a point
    r' transform="rotate\(-0 [^"]*"',
    r'(?<=<g) id="[^"]*"',  # nothing refers to groups
    r"text-anchor: start; |; text-anchor: start",  # the default
    r"^[ \t]+|[ \t]+$",
    r"^<g/>\n",
)


def slim(svg: str, *, texts: str) -> str:
    """Return a picture that matplotlib has written in fewer bytes.

    Args:
        svg: The picture.
        texts: The style that all of its texts have in common, as declarations with semicolons.
    """
    for declaration in texts.split("; "):
        pattern = rf'(<text style="[^"]*?)(?:{re.escape(declaration)}; |; {re.escape(declaration)})'
        svg = re.sub(pattern, r"\1", svg)
    for pattern in _LEFT_OUT:
        svg = re.sub(pattern, "", svg, flags=re.MULTILINE)
    return svg.replace("</style>", f" text{{{texts}}}</style>", 1)
