"""What ends the bare client's process, or would leave something behind, in processes of their own.

The client (valkey-glide-sync 2.6) ends in a crash when the collector finds the error of a read into
a buffer in a reference cycle, and when it is closed while another thread begins a call.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.valkey_faults import programs
from tests.valkey_faults.programs import finished, started
from tieredkv.testing.valkey import ValkeyServer


@pytest.mark.parametrize(
    "program",
    [
        programs.errors_in_cycles,
        programs.close_while_busy,
        programs.fork,
        programs.open_and_close,
    ],
)
def test_a_process_lives_through(server: ValkeyServer, program: programs.Program) -> None:
    assert finished(started(program, server.url)) == 0


def test_a_forked_child_connects_to_nothing_by_itself(server: ValkeyServer) -> None:
    process = started(programs.fork_idle, server.url)
    assert _heard(process) == "idle"
    before = server.info("stats")["total_connections_received"]
    _go_on(process)
    assert _heard(process) == "forked"
    # Ours to ask "before" is one.
    assert int(server.info("stats")["total_connections_received"]) == int(before) + 1
    _go_on(process)
    assert finished(process) == 0


def test_a_process_may_end_while_a_call_is_in_flight(server: ValkeyServer) -> None:
    process = started(programs.leave_in_flight, server.url)
    assert _heard(process) == "open"
    server.pause()
    _go_on(process)
    assert finished(process) == 0


def _heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
