"""The leak check finds what a test leaves behind, and nothing else."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from tieredkv import TieredStore
from tieredkv.testing import leaks
from tieredkv.testing.leaks import LeakCheck
from tieredkv.testing.memory import MemoryBackend

no_leaks = leaks.no_leaks


def check() -> LeakCheck:
    return LeakCheck(patience_s=0.05)


def test_an_open_descriptor_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"descriptor of .*forgotten"), check():
        descriptor = os.open(tmp_path / "forgotten", os.O_CREAT)
    os.close(descriptor)


def test_an_open_socket_is_found() -> None:
    with pytest.raises(AssertionError, match="socket"), check():
        pair = socket.socketpair()
    for end in pair:
        end.close()


def test_a_running_thread_is_named() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    with pytest.raises(AssertionError, match="thread 'forgotten'"), check():
        thread.start()
    release.set()
    thread.join()


def test_a_thread_that_is_ending_is_waited_for() -> None:
    with LeakCheck():
        threading.Thread(target=threading.Event().wait, args=(0.01,)).start()


def test_a_lease_is_named() -> None:
    async def forget() -> None:
        async with TieredStore(l1="1MiB") as store:
            await store.put("forgotten", b"value")
            with pytest.raises(AssertionError, match="lease of 'forgotten'"), check():
                lease = await store.get("forgotten")
            assert lease is not None
            lease.release()

    anyio.run(forget)


def test_a_released_lease_is_none(no_leaks: LeakCheck) -> None:
    async def release() -> None:
        async with TieredStore(l1="1MiB") as store:
            await store.put("key", b"value")
            lease = await store.get("key")
            assert lease is not None
            lease.release()

    anyio.run(release)


def test_the_clients_of_a_watched_backend_are_counted() -> None:
    backend = MemoryBackend()
    unclosed = check()
    unclosed.watch(backend)
    with pytest.raises(AssertionError, match="1 clients of 'memory'"), unclosed:
        anyio.run(backend.open)


def test_a_store_that_is_closed_leaves_nothing(
    no_leaks: LeakCheck, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    async def use() -> None:
        backend = MemoryBackend()
        no_leaks.watch(backend)
        async with TieredStore(l1="1MiB", l2=[backend]) as store:
            for number in range(20):
                await store.put(f"key-{number}", bytes(10_000))

    kind, options = anyio_backend
    anyio.run(use, backend=kind, backend_options=options)


def test_a_failure_is_not_hidden_by_what_it_left() -> None:
    def fail() -> None:
        descriptors.append(os.open(os.devnull, os.O_RDONLY))
        raise KeyError

    descriptors: list[int] = []
    with pytest.raises(KeyError), check():
        fail()
    os.close(descriptors.pop())
