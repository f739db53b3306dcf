"""A store over disk, Valkey and a bucket lives through any sequence of operations, faults included.

What each backend counts by itself is what it lists, and nothing is left behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.hfbucket.media import Buckets, RawClient
from tests.store.machine import StoreMachine
from tieredkv.backends import Backend, DiskBackend, ValkeyBackend
from tieredkv.testing import hub
from tieredkv.testing.leaks import LeakCheck
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.stateful, pytest.mark.network]

ROOM = "64MiB"  # so that the backends keep books; more than a machine writes


def test_any_sequence_of_operations(
    shared_server: ValkeyServer,
    shared_hub: hub.LocalHub,
    raw_client: RawClient,
    anyio_backend: tuple[str, dict[str, Any]],
) -> None:
    buckets = Buckets(shared_hub, raw_client)
    numbers = itertools.count()

    class Machine(StoreMachine):
        loop = anyio_backend

        def make_tiers(self) -> list[Backend]:
            space = f"example-{next(numbers)}"
            shared_server.command("FLUSHALL")
            return [
                DiskBackend(self.path, capacity=ROOM),
                ValkeyBackend(shared_server.url, key_prefix=space, capacity=ROOM, num_workers=2),
                buckets.backend(handle=f"hf://buckets/{buckets.id}/{space}", capacity=ROOM),
            ]

        def check_books(
            self, details: Mapping[str, object], tier: str, listed: Mapping[str, int]
        ) -> None:
            if tier == "disk":
                super().check_books(details, tier, listed)
            else:
                count = "objects" if tier == "valkey" else "stored_object_count"
                assert details[count] == len(listed), tier
                assert details["current_size_bytes"] == sum(listed.values()), tier

    with LeakCheck():
        run_state_machine_as_test(Machine, settings=_extent(anyio_backend))


def _extent(loop: tuple[str, dict[str, Any]]) -> settings:
    """Return how much: some in a minute's check, all in ``nox -s stateful``."""
    if settings.get_current_profile_name() == "stateful":
        return settings(max_examples=200, stateful_step_count=50)
    if loop == ("asyncio", {"use_uvloop": False}):
        return settings(max_examples=10, stateful_step_count=25)
    return settings(max_examples=4, stateful_step_count=20)
