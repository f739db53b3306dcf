"""Does a key function name the same content alike in every process? Also the program that asks it.

Keys made with `hash` do not, unless each process is told one PYTHONHASHSEED: then workers share
nothing, each restart begins with an empty cache, and no call ever fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tieredkv.keys import ObjectKey, wire_name_of

__all__ = ["what_is_wrong_with"]

_SEEDS: Final = (1, 2)
_TIMEOUT_S: Final = 120
_FORM: Final = "a function without arguments that returns the key, or a list of keys, of content"


def what_is_wrong_with(function: str) -> str:
    """Return why the names that a function gives are not to be relied on; empty if they are.

    It is called in two processes that differ in PYTHONHASHSEED.

    Args:
        function: ``module:name``; the module is found as ``python -m`` finds it.
    """
    answers = []
    for seed in _SEEDS:
        try:
            answers.append(_names_by(function, seed))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return f"{function} failed: {error} (it must be {_FORM})"
    if not answers[0]:
        return f"{function} returned no key (it must be {_FORM})"
    for one, other in zip_longest(*answers, fillvalue="nothing"):
        if one != other:
            return (
                f"{function} names the same content {one:.80} in one process and {other:.80} in "
                f"another (PYTHONHASHSEED={_SEEDS[0]} and {_SEEDS[1]}), so no process finds what "
                "another has put: make keys of a digest (hashlib, xxhash), not of hash(), id() or "
                "the order of a set"
            )
    return ""


def _names_by(function: str, seed: int) -> list[str]:
    """Return the names that a process with that seed gives.

    Raises:
        RuntimeError: It failed.
        subprocess.TimeoutExpired: It did not end.
    """
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "names.json"  # what the function prints is no answer
        done = subprocess.run(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", __name__, function, str(answer)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().rpartition("\n")[2] or "it ended its process")
        names: list[str] = json.loads(answer.read_text())
        return names


def _answer(function: str, answer: str) -> None:
    module, _, name = function.partition(":")
    keys = getattr(import_module(module), name)()
    if isinstance(keys, str | ObjectKey):
        keys = [keys]
    Path(answer).write_text(json.dumps([wire_name_of(key) for key in keys]))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
