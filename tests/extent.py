"""How long the state machines run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def extent(loop: tuple[str, dict[str, Any]], *, network: bool = False) -> settings:
    """Return how many examples of how many steps a machine runs on a loop.

    Profile "ci" runs most on plain asyncio, "brief" little everywhere (for further versions of
    Python), "stateful" all everywhere.
    """
    profile = settings.get_current_profile_name()
    if profile == "brief" or (profile == "ci" and loop != ("asyncio", {"use_uvloop": False})):
        return settings(max_examples=20, stateful_step_count=20)
    if profile == "ci" and network:
        return settings(max_examples=40, stateful_step_count=30)
    return settings(max_examples=200, stateful_step_count=50)
