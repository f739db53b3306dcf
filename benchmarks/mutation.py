"""``python -m benchmarks.mutation [MODULE ...] [--most N] [--jobs N]``: do the tests notice?

Plants one defect at a time in a copy of the project and runs the tests of the module it is in,
which must pass without one. A *mutant* is killed by the first test that fails, which is named, or
when the tests do not end. One that no test notices survives: it is printed as a difference, and
the exit status is 1.

What is planted: comparisons off by one or turned around, ``+`` for ``-``, ``and`` for ``or``, a
whole number one higher, a condition that always or never holds, a call that is not made. What a
defect there cannot break is left alone: annotations, docstrings, messages, logs, ``__repr__``.

Those in ``harmless.toml`` change nothing that can be seen, for the reason given; they are not run.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]


def _of_the_store(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/store/test_{name}.py" for name in names)


_WRITES: Final = _of_the_store(
    "writes", "writeback", "write_on", "back_fill", "unfinished_changes", "quotas"
)
_READS: Final = _of_the_store(
    *("loads", "pending_reads", "integrity", "lookups", "memory", "store", "arguments", "fences"),
    "urgency",
)
_TIERS: Final = _of_the_store(
    "health", "absences", "changing_tiers", "opening", "stats", "clear", "shared_memory"
)
_LAST: Final = _of_the_store("interruption", "state_machine")  # they take longest
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "frames": ("tests/leaves/test_frame_format.py", "tests/store/test_integrity.py"),
    "pool/allocator": ("tests/pool/test_allocator.py", "tests/pool/test_pool_machine.py"),
    "pool/arena": ("tests/pool",),
    "pool/lease": ("tests/pool/test_leases.py", "tests/pool"),
    "backends/_client_pool": ("tests/workers",),
    "backends/_workers": ("tests/workers",),
    "tiers/fences": ("tests/store/test_fences.py", *_WRITES),
    "tiers/inflight": ("tests/store/test_inflight.py", *_READS, *_WRITES, *_LAST),
    "tiers/pins": ("tests/store/test_lookups.py", *_READS, *_LAST),
    "tiers/chain": (*_READS, *_WRITES, *_LAST),
    "tiers/writes": (*_WRITES, *_READS, *_TIERS, *_LAST),
    "tiers/writer": (*_WRITES, *_READS, *_TIERS, *_LAST),
    "tiers/put": (*_WRITES, *_READS, *_LAST),
    "tiers/puts": (*_WRITES, *_READS, *_LAST),
    "tiers/spill": (*_WRITES, *_READS, *_LAST),
    "tiers/writeback": (*_WRITES, *_LAST),
    "tiers/reads": (*_READS, *_LAST),
    "tiers/tier": (*_TIERS, *_READS, *_WRITES),
    "tiers/health": _TIERS,
    "tiers/capacity": _of_the_store("quotas"),
    "keys": ("tests/leaves/test_wire_names.py",),
    "backends/threaded": ("tests/conformance",),
    "backends/disk/index": ("tests/disk",),
    "backends/disk/space": ("tests/disk",),
    "backends/disk/files": ("tests/disk",),
}
"""Module → the tests that are to notice a defect in it."""

HARMLESS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (ROOT / "benchmarks" / "harmless.toml").read_text(encoding="utf-8")
)
"""Module → change → why it makes no difference."""

_PATIENCE: Final = 2
"""How many times as long as without a defect, and half a minute more, tests may take."""

_TURNED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SWAPPED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_SILENT: Final = ("_log", "warnings")
_TOLD: Final = frozenset({"__repr__", "__reduce__", "why_no_memory"})


class Mutant(NamedTuple):
    """One planted defect."""

    module: str
    where: str
    source: str
    difference: str

    @property
    def change(self) -> str:
        """Where it is and what it changes, in one line."""
        old, new = (
            " ".join(line[1:].strip() for line in self.difference.splitlines() if line[0] == sign)
            for sign in "-+"
        )
        return f"{self.where}: {old}  =>  {new}"


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse((ROOT / "tieredkv" / f"{module}.py").read_text(encoding="utf-8"))
    plain = ast.unparse(tree)
    for place, (where, node) in enumerate(_sites(tree)):
        for variant in range(_variants(node)):
            changed = copy.deepcopy(tree)
            _plant(_sites(changed)[place][1], variant)
            source = ast.unparse(ast.fix_missing_locations(changed))
            lines = difflib.unified_diff(plain.splitlines(), source.splitlines(), n=0, lineterm="")
            yield Mutant(module, where, source, "\n".join(list(lines)[3:]))


def _sites(tree: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return what can be changed, and where it is, in an order that a copy of the tree has, too."""
    found: list[tuple[str, ast.AST]] = []

    def walk(node: ast.AST, where: str, *, inside: bool) -> None:
        if isinstance(node, ast.FunctionDef) and node.name in _TOLD:
            return
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return
        if isinstance(node, ast.Expr) and _names(node.value).split(".")[0] in _SILENT:
            return
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        inside = inside or is_function
        if inside and _variants(node):
            found.append((where, node))
        for name, child in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "args"} and isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign | ast.arg
            ):
                continue
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    walk(one, where, inside=inside)

    walk(tree, "", inside=False)
    return found


def _names(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _variants(node: ast.AST) -> int:
    """Return in how many ways a node can be changed."""
    match node:
        case ast.Compare(ops=[op]):
            return int(type(op) in _TURNED)
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            return int(type(op) in _SWAPPED)
        case ast.Constant(value=int()) if not isinstance(node.value, bool):
            return 1
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Expr(value=ast.Call() | ast.Await()):
            return 1
        case ast.If() | ast.While():
            return 1 + isinstance(node, ast.If)
    return 0


def _plant(node: ast.AST, variant: int) -> None:
    match node:
        case ast.Compare():
            node.ops = [_TURNED[type(node.ops[0])]()]
        case ast.BinOp() | ast.AugAssign():
            node.op = _SWAPPED[type(node.op)]()
        case ast.Constant():
            node.value += 1  # type: ignore[operator]  # only whole numbers are sites
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.Expr():
            node.value = ast.Constant(value=None)
        case ast.If() | ast.While():
            node.test = ast.Constant(value=variant == 1)


def killer(project: Path, module: str, source: str | None, *, most_s: float) -> str:
    """Run a module's tests in a copy of the project; return what fails first, or "" if all pass.

    Args:
        project: The copy, which nobody else uses.
        module: The module.
        source: What it is replaced by meanwhile; None for nothing.
        most_s: Seconds after which the tests are given up.
    """
    file = project / "tieredkv" / f"{module}.py"
    original = file.read_text(encoding="utf-8")
    if source is not None:
        file.write_text(source, encoding="utf-8")
    options = ("-x", "-q", "-W", "error", "-p", "no:cacheprovider", "--hypothesis-profile=brief")
    some = ("-k", "not uvloop and not trio")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *some, *TESTS[module]],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as tests:
        try:
            said, _ = tests.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            os.killpg(tests.pid, signal.SIGKILL)  # with the servers that the tests have started
            return f"no end within {most_s:.0f} s"
        finally:
            file.write_text(original, encoding="utf-8")
    if tests.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", said, re.MULTILINE)
    return failed[1] if failed else f"pytest, exit status {tests.returncode}"


def examine(
    module: str, projects: Sequence[Path], *, most: int, seed: int
) -> tuple[int, int, list[Mutant]]:
    """Plant some of a module's mutants, and print what kills them.

    Args:
        module: The module.
        projects: Copies of the project; so many are examined at a time.
        most: How many are planted.
        seed: Which ones.

    Returns:
        How many that were, how many of them are explained, and the survivors.
    """
    began = time.monotonic()
    if failed := killer(projects[0], module, None, most_s=3600):
        raise SystemExit(f"{module}: {failed} fails without any defect")
    most_s = 30 + _PATIENCE * (time.monotonic() - began)
    known = list(mutants(module))
    chosen = random.Random(seed).sample(known, min(most, len(known)))
    explained = HARMLESS.get(module, {})
    if gone := explained.keys() - {mutant.change for mutant in known}:
        raise SystemExit(f"{module}: explained, but not to be found: {gone.pop()}")
    free: SimpleQueue[Path] = SimpleQueue()
    for project in projects:
        free.put(project)

    def run(mutant: Mutant) -> bool:
        project = free.get()
        try:
            by = killer(project, module, mutant.source, most_s=most_s)
        finally:
            free.put(project)
        verdict = f"killed   by {by}" if by else "SURVIVES"
        print(f"{module}: {mutant.change}\n    {verdict}", flush=True)
        return bool(by)

    tried = [mutant for mutant in chosen if mutant.change not in explained]
    with ThreadPoolExecutor(len(projects)) as threads:
        killed = list(threads.map(run, tried))
    survivors = [mutant for mutant, dead in zip(tried, killed, strict=True) if not dead]
    return len(chosen), len(chosen) - len(tried), survivors


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, run, report; return how many survive, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=", ".join(TESTS))
    parser.add_argument("--most", type=int, default=10, help="mutants of each module")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    given = parser.parse_args(arguments)
    if unknown := set(given.modules) - set(TESTS):
        parser.error(f"no tests are known for {unknown.pop()!r}: choose from {', '.join(TESTS)}")
    lines: list[str] = []
    left: list[Mutant] = []
    with tempfile.TemporaryDirectory() as directory:
        leave_out = shutil.ignore_patterns(".git", "docs", "__pycache__", ".nox", ".venv")
        projects = [Path(directory) / str(job) for job in range(given.jobs)]
        for project in projects:
            shutil.copytree(ROOT, project, ignore=leave_out)
        for module in given.modules or TESTS:
            planted, explained, survivors = examine(
                module, projects, most=given.most, seed=given.seed
            )
            left += survivors
            killed = planted - explained - len(survivors)
            lines.append(
                f"{module:24}{planted:4} mutants, {killed:4} killed, {explained:2} explained"
            )
    print("", *lines, sep="\n")
    for mutant in left:
        print(f"\n{mutant.module}, {mutant.where}\n{mutant.difference}")
    return min(len(left), 1)


if __name__ == "__main__":
    sys.exit(main())
