"""What ``import tieredkv`` costs beside its unavoidable part, and what it must not bring along."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Final

import anyio

from benchmarks.runner import Figure, Options, Report, child, paired, run_child

_BASE: Final = "import asyncio, anyio, attrs, xxhash"
_PACKAGE: Final = "import tieredkv"
_STORE: Final = "from tieredkv import TieredStore"
_CLASSES: Final = "attrs making classes meanwhile"
_UNWANTED: Final = (
    "click",
    "glide_shared",
    "glide_sync",
    "hf_xet",
    "huggingface_hub",
    "hypothesis",
    "rich",
    "yaml",
)

_TIMED: Final = """
from time import perf_counter
began = perf_counter()
{}
print(perf_counter() - began)
"""

_MAKING_CLASSES: Final = """
import attrs
from time import perf_counter
spent_s = 0.0

def timed(decorate):
    def wrapper(*classes, **options):
        if not classes:
            return lambda of: wrapper(of, **options)
        global spent_s
        began = perf_counter()
        made = decorate(*classes, **options)
        spent_s += perf_counter() - began
        return made
    return wrapper

attrs.define, attrs.frozen = timed(attrs.define), timed(attrs.frozen)
from tieredkv import TieredStore
print(spent_s)
"""

_LOADED: Final = """
import sys
from tieredkv import *
print(*sorted({module.partition(".")[0] for module in sys.modules}))
"""


def run(options: Options) -> Iterator[Report]:
    """Measure in alternating child processes, and list the modules that are loaded.

    All bytecode is cached, as that of installed packages is, in a place of its own: whether this
    process may write any beside the sources makes no difference. The package alone loads little
    until a name of it is used, and a store some of it when it opens; what a user must wait for at
    least, with the packages below it, is the second line.
    """
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        codes = {_BASE: _BASE, _PACKAGE: _PACKAGE, _STORE: f"{_BASE}\n{_STORE}"}
        subjects = [child(name, _TIMED.format(code), env=env) for name, code in codes.items()]
        subjects.append(child(_CLASSES, _MAKING_CLASSES, env=env))
        result = anyio.run(lambda: paired(subjects, rounds=options.rounds_or(11)))
    loaded, _ = run_child(_LOADED)
    unwanted = [name for name in _UNWANTED if name in loaded.split()]
    yield Report(
        "Imports, each in a process of its own",
        result.rows(),
        [
            *(result.ratio(name, _BASE, at_most=1.25) for name in (_PACKAGE, _STORE)),
            result.ratio(_CLASSES, _BASE),
            Figure(f"unwanted packages {unwanted}", len(unwanted), "", at_most=0),
        ],
    )
