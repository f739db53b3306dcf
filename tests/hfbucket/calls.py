"""Calls in the words of the tests: names and bytes in, statuses out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests import calls
from tests.hfbucket.media import Buckets
from tieredkv.backends.hfbucket import HFBucketBackend
from tieredkv.results import GetStatus, ReadOutcome, WriteOutcome
from tieredkv.testing import hub
from tieredkv.testing.backends.requests import Landing, Source

__all__ = ["hub_requests", "opened", "read", "statuses", "write"]


def opened(buckets: Buckets, **settings: Any) -> AbstractAsyncContextManager[HFBucketBackend]:
    """Open a backend over a bucket, and close it."""
    return calls.opened(buckets.backend(**settings))


async def write(backend: HFBucketBackend, *items: tuple[str, bytes]) -> list[WriteOutcome]:
    """Write values."""
    return await backend.write_many([Source(*item).request() for item in items])


async def read(backend: HFBucketBackend, name: str, wanted: bytes) -> ReadOutcome:
    """Read a value of the size of `wanted`; a hit must be it."""
    landing = Landing(name, len(wanted))
    (outcome,) = await backend.read_many([landing.request()])
    assert landing.guards_hold
    assert outcome.status is not GetStatus.HIT or landing.value == wanted
    return outcome


def statuses(outcomes: Sequence[Any]) -> list[Any]:
    """Return only the statuses."""
    return [outcome.status for outcome in outcomes]


def hub_requests(server: hub.LocalHub, path: str = "") -> list[tuple[str, str]]:
    """Return method and last part of the requests to the Hub so far, without those for tokens."""
    return [
        (entry["method"], entry["path"].rpartition("/")[2])
        for entry in server.log
        if not entry["path"].startswith("/cas/")
        and not entry["path"].endswith("-token")
        and path in entry["path"]
    ]
