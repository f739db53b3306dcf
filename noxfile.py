"""Everything that must hold before a change goes in: `nox` runs lint, types, docs and tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.10.14"
nox.options.sessions = ["lint", "types", "docs", "tests"]  # in this order: cheap ones first
nox.options.reuse_venv = "yes"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # in CI too: `tests` runs where found

PROJECT = nox.project.load_toml("pyproject.toml")
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST, NEWEST = "3.11", "3.13"
FOR_LONG = ("-o", "faulthandler_timeout=0")  # a test may take its time
IN_PARALLEL = ("--numprocesses=auto", "--maxprocesses=4")
PYTHONS = list(dict.fromkeys([OLDEST, "3.12", NEWEST, RUNNING]))  # so that one is always there


def use_pyenv_interpreters() -> None:
    """Activate the newest of each of `PYTHONS` that pyenv has: its shims run active ones only."""
    if "PYENV_VERSION" in os.environ or shutil.which("pyenv") is None:
        return
    listed = subprocess.run(
        ["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False
    )
    patches: dict[str, list[int]] = {minor: [] for minor in PYTHONS}
    for name in listed.stdout.split():
        release = re.fullmatch(r"(\d+\.\d+)\.(\d+)", name)
        if release is not None and release[1] in patches:
            patches[release[1]].append(int(release[2]))
    newest = [f"{minor}.{max(found)}" for minor, found in patches.items() if found]
    if newest:
        os.environ["PYENV_VERSION"] = ":".join(newest)


def use_running_interpreter() -> None:
    """Let nox find the Python that runs it, also where it is not on PATH."""
    here = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), here])


use_pyenv_interpreters()
use_running_interpreter()


def install(session: nox.Session, group: str, *options: str) -> None:
    """Install the library with all its extras, and a dependency group.

    The groups are read here, since `pip install --group` needs a newer pip than many have.
    """
    session.install(*options, ".[all]", *nox.project.dependency_groups(PROJECT, group))


def lower_bounds() -> list[str]:
    """Return ``name==lowest`` for every direct dependency, those of the extras included."""
    project = PROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    bounds = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in requirements]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests, warnings as errors.

    All of them with the oldest Python; with the others fewer examples, without uvloop, and with
    those before the newest without trio.
    """
    install(session, "test")
    extent = []
    if session.python != OLDEST:
        loops = "not uvloop" if session.python == NEWEST else "not uvloop and not trio"
        extent = ["--hypothesis-profile=brief", "-k", loops]
    session.run("pytest", *extent, *IN_PARALLEL, *session.posargs)


@nox.session(python=OLDEST)
def minimums(session: nox.Session) -> None:
    """Run the tests with the lowest declared version of every direct dependency."""
    constraints = Path(session.create_tmp()) / "minimums.txt"
    constraints.write_text("\n".join(lower_bounds()) + "\n", encoding="utf-8")
    install(session, "test", "--constraint", str(constraints))
    session.run("pytest", *IN_PARALLEL, *session.posargs)


@nox.session
@nox.parametrize("release", ["huggingface_hub==1.5.0", "huggingface_hub>=2,<3"])
def hub(session: nox.Session, release: str) -> None:
    """Run the tests over Hubs with the first huggingface_hub that has buckets, and the newest."""
    install(session, "test")
    session.install("--upgrade", release)  # one stands on httpx, the other on httpx2
    session.run("pytest", "tests/hub", "tests/hfbucket", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check the rules, the formatting and the layers."""
    session.install(*nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check", "--diff")
    session.run("lint-imports", "--no-logo")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of everything, and that the public ones are complete."""
    install(session, "types")
    session.env["PYRIGHT_PYTHON_IGNORE_WARNINGS"] = "1"  # of newer releases: asks the network
    session.run("mypy")
    session.run("pyright", "--warnings")
    session.run("pyright", "--verifytypes", "tieredkv", "--ignoreexternal")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation and a draft of the change log, warnings as errors."""
    install(session, "docs")
    output = "docs/_build/html"
    session.run("sphinx-build", "-W", "--keep-going", "-n", "-q", "-E", "docs", output)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def stateful(session: nox.Session) -> None:
    """Run the state machines with many more and longer examples than `tests` does."""
    install(session, "test")
    session.run(
        "pytest", "-m", "stateful", *FOR_LONG, "--hypothesis-profile=stateful", *session.posargs
    )


@nox.session
def soak(session: nox.Session) -> None:
    """Run what takes minutes: `nox -s soak -- OPERATIONS` over backends that fail; 100,000."""
    install(session, "test")
    session.run("pytest", "-m", "soak", *FOR_LONG)
    session.run("python", "-m", "benchmarks.soak", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant defects and see whether the tests notice: `nox -s mutants -- ARGUMENTS`; minutes."""
    install(session, "test")
    session.run("python", "-m", "benchmarks.mutation", *session.posargs)


@nox.session(python=OLDEST)
def fuzz(session: nox.Session) -> None:
    """Try what comes from outside, guided by coverage: `nox -s fuzz -- ARGUMENTS`; minutes."""
    install(session, "fuzz")
    session.run("python", "-m", "benchmarks.fuzz", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Look everything that is installed up among known vulnerabilities; asks PyPI."""
    install(session, "test")
    frozen = Path(session.create_tmp()) / "frozen.txt"
    listed = session.run("pip", "freeze", "--exclude", "tieredkv", silent=True)
    frozen.write_text(str(listed), encoding="utf-8")
    session.install(*nox.project.dependency_groups(PROJECT, "audit"))
    session.run("pip-audit", "--strict", "--no-deps", "--disable-pip", "-r", str(frozen))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure everything and draw docs/benchmarks.md; `nox -s bench -- NAME`: print one of them."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *(session.posargs or ["--page"]))
