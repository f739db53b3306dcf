"""Programs that use a directory from processes of their own; ``python -m tests.disk.programs``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from tests.calls import get, opened, put
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.testing.content import content

LARGE_BYTES = 8 * MiB


def value_of(name: str) -> bytes:
    """Return the one value that a name ever has; of any size to a few hundred KiB."""
    number = int(name.rpartition("-")[2])
    return content(name, number * 7919 % (300 * KiB))


def say(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


async def overwrite(root: str, fill: str, times: str) -> None:
    """Write one name, each time with a value of one byte, the next one of a writer's own."""
    async with opened(DiskBackend(root)) as backend:
        for number in range(int(times)):
            value = bytes([int(fill) + number % 100]) * LARGE_BYTES
            assert str((await put(backend, "shared", value)).status) == "stored"


async def fill(root: str, capacity: str, prefix: str, first: str) -> None:
    """Write more and more values, and tell of each when it is stored, until killed."""
    async with opened(DiskBackend(root, capacity=int(capacity))) as backend:
        for number in range(int(first), 1_000_000):
            name = f"{prefix}-{number}"
            assert str((await put(backend, name, value_of(name))).status) == "stored"
            say(name)


async def hold(root: str, capacity: str) -> None:
    """Open the directory, say whether as its owner, and obey: get NAME, put NAME, close."""
    async with opened(DiskBackend(root, capacity=int(capacity))) as backend:
        say((await backend.status()).details["is_owner"])
        while (order := sys.stdin.readline().split()) and order[0] != "close":
            if order[0] == "get":
                value = await get(backend, order[1], len(value_of(order[1])))
                assert value in (None, value_of(order[1]))
                say(value is not None)
            else:
                say((await put(backend, order[1], value_of(order[1]))).status)


PROGRAMS: dict[str, Callable[..., object]] = {"overwrite": overwrite, "fill": fill, "hold": hold}


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends; then it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, program, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], order: str) -> str:
    """Give `hold` an order and return its answer."""
    assert process.stdin is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    return heard(process)


def heard(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program prints; empty if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


if __name__ == "__main__":
    anyio.run(PROGRAMS[sys.argv[1]], *sys.argv[2:])  # type: ignore[arg-type]
