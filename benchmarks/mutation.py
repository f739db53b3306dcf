"""``python -m benchmarks.mutation [MODULE ...] [--most N] [--jobs N]``: do the tests notice?

Plants one defect at a time in a copy of the project and runs the tests of the module it is in. A
*mutant* that no test notices survives; it is printed as a difference, and the exit status is 1.

What is planted: comparisons off by one or turned around, ``+`` for ``-``, ``and`` for ``or``, a
whole number one higher, a condition that always or never holds, a call that is not made. What a
defect there cannot break is left alone: annotations, docstrings, messages, logs, ``__repr__``.

Those in `HARMLESS` change nothing that can be seen, for the reason given.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

_WRITES: Final = tuple(
    f"tests/store/test_{what}.py"
    for what in ("writes", "writeback", "write_on", "back_fill", "interruption")
)
_READS: Final = tuple(
    f"tests/store/test_{what}.py"
    for what in (
        "loads",
        "pending_reads",
        "integrity",
        "lookups",
        "memory",
        "store",
        "clear",
        "fences",
    )
)
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "frames": ("tests/leaves/test_frame_format.py", "tests/store/test_integrity.py"),
    "pool/allocator": ("tests/pool/test_allocator.py", "tests/pool/test_pool_machine.py"),
    "pool/arena": ("tests/pool",),
    "pool/lease": ("tests/pool/test_leases.py", "tests/pool"),
    "backends/_workers": ("tests/workers",),
    "tiers/fences": ("tests/store/test_fences.py", *_WRITES),
    "tiers/inflight": ("tests/store/test_inflight.py", *_READS, *_WRITES),
    "tiers/pins": ("tests/store/test_lookups.py", *_READS),
    "tiers/chain": (*_READS, *_WRITES),
    "tiers/writes": (*_WRITES, *_READS),
    "tiers/writer": (*_WRITES, *_READS),
    "tiers/put": (*_WRITES, *_READS),
}
"""Module → the tests that are to notice a defect in it."""

HARMLESS: Final[dict[tuple[str, str], str]] = {
    (
        "pool/allocator",
        "self._nonempty = 0  =>  self._nonempty = 1",
    ): "no extent is of class 0, and its bit is never looked at",
    (
        "frames",
        "self.generation: int = 0  =>  self.generation: int = 1",
    ): "of `FrameCheck` it says nothing before a HIT; of `SizeCheck` a test holds it",
    (
        "backends/_workers",
        "self._overtaken[priority] = 0  =>  self._overtaken[priority] = 1",
    ): "what has had its turn is patient three times instead of four",
}
"""Module and change → why it makes no difference."""

_TESTS_TAKE_S: Final = 120
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
    source: str
    difference: str

    @property
    def change(self) -> str:
        """What it changes, in one line."""
        old, new = (
            " ".join(line[1:].strip() for line in self.difference.splitlines() if line[0] == sign)
            for sign in "-+"
        )
        return f"{old}  =>  {new}"


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse((ROOT / "tieredkv" / f"{module}.py").read_text(encoding="utf-8"))
    plain = ast.unparse(tree)
    for place, _ in enumerate(_sites(tree)):
        for variant in range(_variants(_sites(tree)[place])):
            changed = copy.deepcopy(tree)
            _plant(_sites(changed)[place], variant)
            source = ast.unparse(ast.fix_missing_locations(changed))
            lines = difflib.unified_diff(plain.splitlines(), source.splitlines(), n=0, lineterm="")
            yield Mutant(module, source, "\n".join(list(lines)[3:]))


def _sites(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed, in an order that a copy of the tree has, too."""
    found: list[ast.AST] = []

    def walk(node: ast.AST, *, inside: bool) -> None:
        if isinstance(node, ast.FunctionDef) and node.name in _TOLD:
            return
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            return
        if isinstance(node, ast.Expr) and _names(node.value).split(".")[0] in _SILENT:
            return
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if inside and _variants(node):
            found.append(node)
        for name, child in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "args"} and isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign | ast.arg
            ):
                continue
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    walk(one, inside=inside)

    walk(tree, inside=False)
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


def is_killed(mutant: Mutant, project: Path) -> bool:
    """Return whether the tests notice a mutant, in a copy of the project of one's own."""
    file = project / "tieredkv" / f"{mutant.module}.py"
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    options = ("-x", "-q", "-W", "error", "-p", "no:cacheprovider", "--hypothesis-profile=brief")
    some = ("-k", "not uvloop and not trio")
    command = [sys.executable, "-m", "pytest", *options, *some, *TESTS[mutant.module]]
    environment = {**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            capture_output=True,
            timeout=_TESTS_TAKE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(original, encoding="utf-8")
    return done.returncode != 0


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
    chosen: list[Mutant] = []
    for module in given.modules or TESTS:
        known = [m for m in mutants(module) if (module, m.change) not in HARMLESS]
        chosen += random.Random(given.seed).sample(known, min(given.most, len(known)))
    projects: SimpleQueue[Path] = SimpleQueue()

    def run(mutant: Mutant) -> bool:
        project = projects.get()
        try:
            killed = is_killed(mutant, project)
        finally:
            projects.put(project)
        print(
            f"{'killed  ' if killed else 'SURVIVES'} {mutant.module}: {mutant.change}", flush=True
        )
        return killed

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(given.jobs) as threads:
        for job in range(given.jobs):
            project = Path(directory) / str(job)
            leave_out = shutil.ignore_patterns(".git", "docs", "__pycache__", ".nox", ".venv")
            shutil.copytree(ROOT, project, ignore=leave_out)
            projects.put(project)
        outcomes = list(threads.map(run, chosen))
    survivors = [m for m, killed in zip(chosen, outcomes, strict=True) if not killed]
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors)} killed")
    for mutant in survivors:
        print(f"\n{mutant.module}\n{mutant.difference}")
    return min(len(survivors), 1)


if __name__ == "__main__":
    sys.exit(main())
