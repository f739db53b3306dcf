"""A server and a Hub for the tests of this folder: the store over all of its backends."""

from __future__ import annotations

from tests.hfbucket.conftest import pytest_unconfigure, raw_client, shared_hub
from tests.valkey.conftest import shared_server

__all__ = ["pytest_unconfigure", "raw_client", "shared_hub", "shared_server"]
