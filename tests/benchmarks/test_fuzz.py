"""The guided search tries the properties that are there, and says what fails."""

from __future__ import annotations

import pytest

from benchmarks import fuzz


def test_every_property_can_be_tried() -> None:
    properties = fuzz.properties()
    assert len(properties) >= 10
    for function in properties.values():
        # As Hypothesis makes it of bytes; with too few of them there are no arguments.
        assert function.hypothesis.fuzz_one_input(b"") is None  # type: ignore[attr-defined]


def test_a_property_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fuzz.main(["test_nothing"])
    assert "no property is called 'test_nothing': choose from test_a" in capsys.readouterr().err


def test_what_fails_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not fuzz.fuzzed("test_nothing", seconds=1)
    said = capsys.readouterr().out
    assert said.startswith("test_nothing: FAILS (exit status 1)")
    assert "Traceback" in said
