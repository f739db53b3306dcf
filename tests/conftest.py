"""Fixtures of the whole suite: every async test runs on asyncio, uvloop and trio."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "stateful", parent=settings.get_profile("ci"), max_examples=200, stateful_step_count=50
)
settings.register_profile("brief", parent=settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci")


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """Run the test on each event loop."""
    return request.param
