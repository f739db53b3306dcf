"""Opening, closing, and callers that give up."""

from __future__ import annotations

import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.calls import get, names, opened, put
from tieredkv.backends import DiskBackend
from tieredkv.backends.disk import backend as module
from tieredkv.errors import WrongLoopError
from tieredkv.testing.backends.requests import Gate, Source

pytestmark = pytest.mark.anyio


def test_one_event_loop_after_another_may_use_it(tmp_path: Path) -> None:
    backend = DiskBackend(tmp_path)

    async def use(number: int) -> None:
        async with opened(backend):
            await put(backend, f"{number}", b"value")
            assert await get(backend, "0", 5) == b"value"

    for number, loop in enumerate(["asyncio", "trio", "asyncio"]):
        anyio.run(use, number, backend=loop)


def test_two_event_loops_at_a_time_use_one_directory(tmp_path: Path) -> None:
    backends: dict[str, DiskBackend] = {}
    both = threading.Barrier(2)

    async def meet() -> None:
        await to_thread.run_sync(both.wait, 30)

    async def use(own: str, other: str) -> None:
        async with opened(DiskBackend(tmp_path)) as backends[own]:
            await put(backends[own], own, own.encode())
            await meet()
            assert await get(backends[own], other, 1) == other.encode()
            with pytest.raises(WrongLoopError):
                await get(backends[other], own, 1)
            await meet()

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(anyio.run, use, *names) for names in ("ab", "ba")]
    for each in running:
        each.result()


async def test_another_event_loop_cannot_close_it(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:

        def close_elsewhere() -> None:
            with pytest.raises(WrongLoopError):
                anyio.run(backend.aclose)

        await to_thread.run_sync(close_elsewhere)
        await put(backend, "name", b"value")
        assert (await backend.status()).details["is_owner"] is True
        with (tmp_path / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_the_directory_is_in_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with opened(DiskBackend("~/cache/kv")) as backend:
        await put(backend, "name", b"value")
    assert (tmp_path / "cache" / "kv" / "objects").is_dir()


async def test_closing_leaves_values_and_no_lock(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:
        await put(backend, "name", b"value")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "objects", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_an_opening_that_is_cancelled_keeps_no_lock(tmp_path: Path) -> None:
    for _ in range(20):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await DiskBackend(tmp_path).open()
        assert scope.cancelled_caught
    backend = DiskBackend(tmp_path)
    with anyio.fail_after(20):
        while True:  # the workers of those that gave up may still be on their way out
            async with opened(backend):
                if (await backend.status()).details["is_owner"]:
                    break


async def test_puts_that_are_cancelled_while_they_wait_are_never_begun(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, num_workers=1)) as backend:
        gate = Gate()
        queued = [Source(f"queued-{number}", b"value") for number in range(5)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                backend.write_many, [Source("first", b"value", on_seal=gate.hold).request()]
            )
            await gate.arrival()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as waiting:
                    for source in queued:
                        waiting.start_soon(backend.write_many, [source.request()])
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            gate.open()
        assert not any(source.threads for source in queued)
        assert await names(backend) == ["first"]


async def test_status_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STATUS_DEADLINE_S", 0.01)
    async with opened(DiskBackend(tmp_path, num_workers=1)) as backend:
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                backend.write_many, [Source("name", b"value", on_seal=gate.hold).request()]
            )
            await gate.arrival()
            status = await backend.status()
            gate.open()
        assert not status.is_healthy
        assert "no worker was free" in status.reason
    assert not (await backend.status()).is_healthy


async def test_status_tells_what_there_is(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path, capacity="1MiB")) as backend:
        await put(backend, "name", bytes(5000))
        status = await backend.status()
        assert status.is_healthy
        assert status.reason == ""
        assert status.details["path"] == str(tmp_path)
        assert status.details["capacity_bytes"] == 1 << 20
        assert status.details["used_bytes"] == 8192
        assert status.details["objects"] == 1
        assert status.details["is_owner"] is True
        assert isinstance(status.details["free_bytes"], int)
