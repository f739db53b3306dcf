"""Planting defects works: what tests notice is killed, what they do not notice survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mutation

MODULE = """
def is_below(number, limit):
    return not number >= limit
"""
TESTS = """
from tieredkv.module import is_below

def test_it_is_below():
    assert is_below(1, 3)
"""
PROFILE = """
import hypothesis

hypothesis.settings.register_profile("brief")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, text in {
        "tieredkv/__init__.py": "",
        "tieredkv/module.py": MODULE,
        "tests/conftest.py": PROFILE,
        "tests/test_module.py": TESTS,
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "TESTS", {"module": ("tests/test_module.py",)})
    return tmp_path


def test_the_test_that_notices_a_defect_is_named(project: Path) -> None:
    defect = MODULE.replace("not ", "")
    killer = mutation.killer(project, "module", defect, most_s=600)
    assert killer == "tests/test_module.py::test_it_is_below"
    assert (project / "tieredkv" / "module.py").read_text() == MODULE
    assert mutation.killer(project, "module", None, most_s=600) == ""


def test_what_no_test_notices_survives(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killer(project: Path, module: str, source: str | None, *, most_s: float) -> str:
        return "a test" if source is not None and "not not" in source else ""

    monkeypatch.setattr(mutation, "killer", killer)
    planted, explained, survivors = mutation.examine("module", [project], most=100, seed=1)
    assert (planted, explained) == (2, 0)
    assert [mutant.change for mutant in survivors] == [
        "is_below: return not number >= limit  =>  return not number > limit"
    ]


def test_what_is_explained_is_not_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "killer", lambda *_, **__: "")
    reasons = {mutant.change: "a reason" for mutant in mutation.mutants("module")}
    monkeypatch.setattr(mutation, "HARMLESS", {"module": reasons})
    assert mutation.examine("module", [project], most=100, seed=1) == (2, 2, [])
    reasons["elsewhere"] = "it was simplified away"
    with pytest.raises(SystemExit, match="explained, but not to be found: elsewhere"):
        mutation.examine("module", [project], most=100, seed=1)


def test_tests_that_fail_by_themselves_are_no_evidence(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "killer", lambda *_, **__: "tests/test_module")
    with pytest.raises(SystemExit, match="tests/test_module fails without any defect"):
        mutation.examine("module", [project], most=100, seed=1)


def test_the_modules_and_their_tests_are_there() -> None:
    assert mutation.HARMLESS.keys() <= mutation.TESTS.keys()
    for module, tests in mutation.TESTS.items():
        assert (mutation.ROOT / "tieredkv" / f"{module}.py").is_file()
        assert [path for path in tests if not (mutation.ROOT / path).exists()] == []
