"""``python -m benchmarks.fuzz [TEST ...] [--seconds N]``: what comes from outside, by its coverage.

The properties in ``tests/fuzz`` are tried with inputs of Atheris (libFuzzer): it keeps those that
reach code which none before has reached, and makes more of their kind. Hypothesis turns its bytes
into a property's arguments. ``pytest tests/fuzz`` tries a hundred arguments without that guidance.

Each property has a process of its own. The exit status is 1 if one of them fails; what it failed
with is printed. Needs Atheris: ``nox -s fuzz -- ARGUMENTS``.
"""

from __future__ import annotations

import argparse
import inspect
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from hypothesis import settings

_PROPERTIES: Final = "tests.fuzz.test_inputs"
_MOST_BYTES: Final = 4096  # of an input
_SEEDS: Final = 100  # random inputs to begin with, as short ones make no arguments


def properties() -> dict[str, Callable[..., None]]:
    """Return the properties by name."""
    found = inspect.getmembers(import_module(_PROPERTIES), inspect.isfunction)
    return {name: function for name, function in found if name.startswith("test_")}


def fuzz_here(name: str, seconds: int, directory: str) -> None:
    """Try one property; ends the process."""
    atheris: Any = import_module("atheris")
    settings.register_profile("fuzz", database=None, deadline=None)
    settings.load_profile("fuzz")
    with atheris.instrument_imports(include=["tieredkv"]):
        chosen: Any = properties()[name]
    options = (
        f"-max_total_time={seconds}",
        f"-max_len={_MOST_BYTES}",
        "-len_control=0",
        "-print_final_stats=1",
        f"-artifact_prefix={directory}/",
        _seeds(Path(directory)),
    )
    atheris.Setup([sys.argv[0], *options], chosen.hypothesis.fuzz_one_input)
    atheris.Fuzz()


def _seeds(directory: Path) -> str:
    """Return a new directory of inputs."""
    seeds = directory / "seeds"
    seeds.mkdir()
    chance = random.Random(1)
    for number in range(_SEEDS):
        size = chance.randint(_MOST_BYTES // 16, _MOST_BYTES)
        (seeds / str(number)).write_bytes(chance.randbytes(size))
    return str(seeds)


def fuzzed(name: str, seconds: int) -> bool:
    """Try one property in a process of its own and print what came of it; True if it held."""
    with tempfile.TemporaryDirectory() as directory:
        code = f"import benchmarks.fuzz as f; f.fuzz_here({name!r}, {seconds}, {directory!r})"
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    tried = re.search(r"number_of_executed_units:\s*(\d+)", ended.stdout)
    covered = re.findall(r"cov: (\d+)", ended.stdout)
    if ended.returncode or tried is None:
        print(f"{name}: FAILS (exit status {ended.returncode})\n{ended.stdout}", flush=True)
        return False
    reached = covered[-1] if covered else "no"
    print(f"{name}: {int(tried[1]):,} inputs, {reached} places reached, holds", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Try properties; return 1 if one does not hold."""
    names = list(properties())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TEST", help=", ".join(names))
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(names):
        parser.error(f"no property is called {unknown.pop()!r}: choose from {', '.join(names)}")
    held = [fuzzed(name, given.seconds) for name in given.names or names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
