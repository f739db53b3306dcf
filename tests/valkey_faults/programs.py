"""Programs whose own end is what is tested; ``python -m tests.valkey_faults.programs NAME URL``."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from tests.calls import get, put, read
from tests.forking import fork_and_run
from tests.valkey_faults.calls import backend_at, opened
from tieredkv.backends import ValkeyBackend
from tieredkv.config import KiB
from tieredkv.errors import StoreClosedError
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.backends.requests import Landing, Source

_TIMEOUT_S: Final = 100.0


async def errors_in_cycles(url: str) -> None:
    """Let errors of reads end in reference cycles, and collect them."""

    class Cycle:
        def __init__(self, error: object) -> None:
            self.error = error
            self.itself = self

    async with opened(url) as backend:
        for name in ("small", "large"):
            await put(backend, name, bytes(400 * KiB if name == "large" else 5 * KiB))
        for _ in range(100):
            for name, nbytes in (("small", 4 * KiB), ("large", 300 * KiB)):
                outcome = await read(backend, name, nbytes)
                assert outcome.status is GetStatus.REJECTED, outcome
                Cycle(outcome.error)
        gc.collect()


async def close_while_busy(url: str) -> None:
    """Close a backend, again and again, while all its workers begin calls."""

    async def read_until_closed(backend: ValkeyBackend) -> None:
        with contextlib.suppress(StoreClosedError):
            while True:
                await backend.read_many([Landing(f"{n}", 8).request() for n in range(8)])

    for number in range(60):
        backend = backend_at(url, num_workers=6)
        await backend.open()
        await backend.write_many([Source(f"{n}", bytes(8)).request() for n in range(8)])
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(read_until_closed, backend)
            for _ in range(number):
                await checkpoint()
            await backend.aclose()


async def fork(url: str) -> None:
    """Fork with idle clients, and while calls run; all go on, each over its own connections."""
    value = bytes(300 * KiB)

    async def use(backend: ValkeyBackend) -> None:
        assert await get(backend, "name", len(value)) == value

    async def reopen_and_use(backend: ValkeyBackend) -> None:
        await backend.open()
        await use(backend)
        await backend.aclose()

    async with opened(url) as backend:
        assert (await put(backend, "name", value)).status is PutStatus.STORED
        fork_and_run(partial(reopen_and_use, backend))
        await use(backend)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(use, backend)
            await checkpoint()
            fork_and_run(partial(reopen_and_use, backend_at(url)))
        for _ in range(10):
            await use(backend)


async def fork_idle(url: str) -> None:
    """Fork with idle clients: say so, and say when the child is there, which does nothing."""
    async with opened(url) as backend:
        assert (await put(backend, "name", b"value")).status is PutStatus.STORED
        _ask("idle")
        child = os.fork()
        if child == 0:
            signal.pause()
        _ask("forked")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert await get(backend, "name", 5) == b"value"


async def open_and_close(url: str) -> None:
    """Open, use and close backends; what is left does not grow."""

    def resources() -> tuple[int, int]:
        gc.collect()
        descriptors, threads = (Path("/proc/self", kind).iterdir() for kind in ("fd", "task"))
        return len(list(descriptors)), len(list(threads))

    async def use() -> None:
        async with opened(url, num_workers=4) as backend:
            sources = [Source(f"{n}", bytes(300 * KiB)) for n in range(8)]
            await backend.write_many([source.request() for source in sources])
            landings = [Landing(f"{n}", 300 * KiB) for n in range(8)]
            await backend.read_many([landing.request() for landing in landings])

    await use()
    before = resources()
    for _ in range(10):
        await use()
    assert resources() == before, (before, resources())


async def leave_in_flight(url: str) -> None:
    """End while a call that was given up still waits for a server that does not answer."""
    backend = backend_at(url)
    await backend.open()
    _ask("open")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(get, backend, "name", 5)
        while not backend._workers.num_running:
            await checkpoint()
        tasks.cancel_scope.cancel()


def _ask(state: str) -> None:
    """Tell the parent how far we are, and wait until it has seen to that."""
    sys.stdout.write(f"{state}\n")
    sys.stdout.flush()
    sys.stdin.readline()


Program: TypeAlias = Callable[[str], Awaitable[None]]
PROGRAMS: Final[dict[str, Program]] = {
    program.__name__: program
    for program in (
        errors_in_cycles,
        close_while_busy,
        fork,
        fork_idle,
        open_and_close,
        leave_in_flight,
    )
}


def started(program: Program, url: str) -> subprocess.Popen[str]:
    """Start a program."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, program.__name__, url],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> int:
    """Wait for a program's end and return its exit code, after showing what it has said."""
    with process:
        try:
            said, complained = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    sys.stdout.write(said + complained[-3000:])
    return process.returncode


if __name__ == "__main__":
    faulthandler.enable()
    anyio.run(PROGRAMS[sys.argv[1]], sys.argv[2])
