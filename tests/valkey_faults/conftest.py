"""Real servers, shared by the tests of a session where they can be left as they were found."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tieredkv.testing.valkey import (
    Certificates,
    TLSProgram,
    ValkeyCluster,
    ValkeyServer,
    find_tls_program,
)


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A server for one test, to do anything to."""
    with ValkeyServer() as running:
        yield running


@pytest.fixture(scope="session")
def _session_cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(node_timeout_ms=500) as running:
        yield running


@pytest.fixture
def cluster(_session_cluster: ValkeyCluster) -> Iterator[ValkeyCluster]:
    """A cluster of 3 primaries and 3 replicas, to do anything to that `repair` can mend."""
    yield _session_cluster
    _session_cluster.repair()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of all kinds."""
    return Certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_program(tmp_path_factory: pytest.TempPathFactory) -> TLSProgram:
    """A server's program with TLS: where there is none, the tests cannot run, and a CI fails."""
    try:
        return find_tls_program(tmp_path_factory.mktemp("tls"))
    except RuntimeError as error:
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip(str(error))
        raise
