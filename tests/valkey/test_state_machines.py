"""A server and a Cluster live through any sequence of operations, faults included."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.extent import extent
from tests.valkey.media import OneCluster, OneServer, connections_of
from tieredkv.testing.machines import BackendMachine
from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer

pytestmark = [pytest.mark.stateful, pytest.mark.network]

Loop = tuple[str, dict[str, Any]]


def test_any_sequence_of_operations_on_a_server(
    shared_server: ValkeyServer, anyio_backend: Loop
) -> None:
    with shared_server.connect() as raw:

        class Machine(OneServer, BackendMachine):
            loop = anyio_backend
            server, connection = shared_server, raw

            def __init__(self) -> None:
                raw.command("FLUSHALL")
                super().__init__()

        run_state_machine_as_test(Machine, settings=extent(anyio_backend, network=True))


def test_any_sequence_of_operations_on_a_cluster(
    shared_cluster: ValkeyCluster, anyio_backend: Loop
) -> None:
    with ExitStack() as stack:
        raw = connections_of(shared_cluster, stack)

        class Machine(OneCluster, BackendMachine):
            loop = anyio_backend
            cluster, connections = shared_cluster, raw

            def __init__(self) -> None:
                for connection in set(raw.values()):
                    connection.command("FLUSHALL")
                super().__init__()

        run_state_machine_as_test(Machine, settings=extent(anyio_backend, network=True))
