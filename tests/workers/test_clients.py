"""Who uses which client, and that they stay few."""

from __future__ import annotations

import subprocess
import sys
import threading

import anyio
import pytest
from anyio import to_thread

from tests.workers.parts import Client, Clients, workers_of
from tieredkv.backends._client_pool import ClientPool
from tieredkv.backends._workers import Workers

pytestmark = pytest.mark.anyio


async def test_clients_stay_within_num_workers_whatever_threads_serve_them() -> None:
    clients = Clients()
    async with workers_of(3, clients) as workers:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(12):
                    tasks.start_soon(workers.run_all, [Client.use] * 5)
                for _ in range(12):  # others use anyio's threads, too
                    tasks.start_soon(to_thread.run_sync, threading.get_ident)
        assert len(clients.made) <= 3
        assert workers.num_clients == len(clients.open)
    assert clients.open == []


async def test_a_thread_gets_the_client_back_that_it_used_last() -> None:
    clients = Clients()
    pool = ClientPool(clients.connect, clients.disconnect)
    here = pool.take()
    there = await to_thread.run_sync(pool.take)
    pool.give_back(here)
    pool.give_back(there)  # the most recently used, but another thread's
    assert pool.take() is here


async def test_an_idle_client_is_handed_on_when_its_thread_does_not_come_back() -> None:
    clients = Clients()
    pool = ClientPool(clients.connect, clients.disconnect)
    pool.give_back(await to_thread.run_sync(pool.take))
    pool.take()
    assert len(clients.made) == 1


def test_a_forked_child_makes_its_own_clients_and_leaves_its_parents_alone() -> None:
    script = """if True:
        import os
        from tieredkv.backends._client_pool import ClientPool

        made = []

        def connect():
            made.append(object())
            return made[-1]

        def disconnect(client):
            raise AssertionError("the parent's client was closed")

        pool = ClientPool(connect, disconnect)
        holder = pool.take()
        pool.give_back(holder)
        if child := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0 if pool.take() is not holder and pool.size == 1 else 1)
    """
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)


async def test_a_client_that_cannot_be_made_fails_the_batch_and_is_tried_again() -> None:
    attempts = 0

    def connect() -> Client:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionRefusedError("no server")
        return Client()

    workers = Workers("backend", num_workers=1, connect=connect, disconnect=lambda client: None)
    workers.open()
    with pytest.raises(ConnectionRefusedError, match="no server"):
        await workers.run(lambda client: 1)
    assert workers.num_clients == 0
    assert await workers.run(lambda client: 1) == 1
    await workers.aclose()
