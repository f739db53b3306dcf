"""The tests that the page on guarantees names are there."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs.examples import DOCS, ROOT

PAGE = (DOCS / "guarantees.md").read_text()
PROMISES = re.findall(r"^(\d+)\. .*\n((?:    - `.*`\n)*)", PAGE, re.MULTILINE)


def test_promises_are_numbered_in_order() -> None:
    assert [int(number) for number, _ in PROMISES] == list(range(1, len(PROMISES) + 1))


def test_each_promise_names_tests_and_pytest_finds_them_all() -> None:
    named = {number: re.findall(r"- `(.*)`", tests) for number, tests in PROMISES}
    assert [number for number, tests in named.items() if not tests] == []
    every = sorted({test for tests in named.values() for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    collected = subprocess.run(
        [*command, *every], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
