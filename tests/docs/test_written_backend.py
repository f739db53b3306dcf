"""The backend of the how-to passes kit and state machine: pytest finds both among its names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from tests.docs.examples import DOCS, examples

PAGE = DOCS / "how-to/writing-a-backend.md"


@pytest.fixture
def anyio_backend() -> str:
    """One loop will do: what differs between them is in `ThreadedBackend`, tested on all."""
    return "asyncio"


def _names_of_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    for source, line, _ in examples(PAGE.read_text()):
        if "async with" not in source:  # that one is run with those of the other pages
            exec(compile("\n" * line + source, PAGE, "exec", dont_inherit=True), names)
    return names


globals().update(_names_of_the_page())
globals()["TestSQLiteMachine"].settings = settings(max_examples=15, stateful_step_count=20)
