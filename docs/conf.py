"""Settings of Sphinx: `nox -s docs` builds the pages, warnings as errors."""

from __future__ import annotations

import builtins
import re
import sys
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

project = "tieredkv"
copyright = "The tieredkv authors"  # noqa: A001 - Sphinx wants this name
release = metadata.version(project)

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "settings_tables", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "changes"]
html_theme = "furo"
html_title = f"{project} {release}"
default_role = "code"
myst_heading_anchors = 2

autoclass_content = "class"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # else an "Attributes:" section describes fields twice

# Only our own names have a page to link to. The inventories of others would need the network.
FOREIGN = ("anyio", "attr", "attrs", "click", "hypothesis", "numpy", "rich", "typing_extensions")
nitpick_ignore = [("py:class", name) for name in dir(builtins)]
nitpick_ignore += [("py:exc", name) for name in dir(builtins)]
nitpick_ignore += [  # parts of a signature that nobody uses by name
    ("py:attr", "tieredkv.keys._All.ALL"),
    ("py:class", "PrefetchPolicy"),
    ("py:class", "tieredkv.backends.disk.volume.Volume"),
    ("py:class", "tieredkv.backends.valkey.transfers.Transfers"),
    ("py:class", "tieredkv.clients.glide.settings.ClientSettings"),
]
nitpick_ignore_regex = [
    (r"py:.*", rf"{re.escape(root)}\..*") for root in (*sorted(sys.stdlib_module_names), *FOREIGN)
]
nitpick_ignore_regex += [(r"py:(class|obj)", r"tieredkv\..*[a-z]T")]  # type variables


def setup(app: Sphinx) -> None:
    """Read the docstring of a field as text with sections, like any other.

    napoleon alone takes it for ``type: description`` and turns half a sentence into a type.
    """
    fields = {"attribute", "data", "property"}
    written: dict[str, list[str]] = {}

    def before(
        _app: Sphinx, what: str, name: str, _obj: object, _options: object, lines: list[str]
    ) -> None:
        if what in fields:
            written[name] = lines.copy()

    def after(
        app: Sphinx, what: str, name: str, _obj: object, _options: object, lines: list[str]
    ) -> None:
        if what in fields:
            lines[:] = GoogleDocstring(written.pop(name), app.config, app, "method", name).lines()

    app.connect("autodoc-process-docstring", before, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", after, priority=600)
