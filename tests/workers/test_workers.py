"""Hops: who waits, who owns, what a cancelled caller leaves behind."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from anyio import to_thread

from tieredkv.backends._workers import ClientPool, Workers
from tieredkv.errors import StoreClosedError, WrongLoopError

pytestmark = pytest.mark.anyio


class Client:
    """Remembers who used it; two users at a time are an error."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.closed_by: int | None = None
        self._busy = threading.Lock()

    def use(self) -> None:
        assert self._busy.acquire(blocking=False), "two threads use one client"
        try:
            assert self.closed_by is None, "used after it was closed"
            self.threads.add(threading.get_ident())
        finally:
            self._busy.release()


class Clients:
    """Makes clients and keeps all of them."""

    def __init__(self) -> None:
        self.made: list[Client] = []

    def connect(self) -> Client:
        client = Client()
        self.made.append(client)
        return client

    def disconnect(self, client: Client) -> None:
        assert client.closed_by is None, "closed twice"
        client.closed_by = threading.get_ident()

    @property
    def open(self) -> list[Client]:
        return [client for client in self.made if client.closed_by is None]


@asynccontextmanager
async def workers_of(
    num_workers: int, clients: Clients | None = None
) -> AsyncIterator[Workers[Client]]:
    clients = clients or Clients()
    workers = Workers(
        "backend 'test'",
        num_workers=num_workers,
        connect=clients.connect,
        disconnect=clients.disconnect,
    )
    workers.open()
    try:
        yield workers
    finally:
        await workers.aclose()


class Gate:
    """A job that stays in its worker until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, client: Client) -> str:
        self.entered.set()
        assert self.let_go.wait(timeout=30)
        client.use()
        return "done"

    def stay(self, client: Client) -> None:
        self(client)

    async def wait_entered(self) -> None:
        await until(self.entered.is_set)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.001)


async def test_a_job_runs_in_a_thread_and_returns_its_result() -> None:
    async with workers_of(2) as workers:
        thread = await workers.run(lambda client: threading.get_ident())
        assert thread != threading.get_ident()


async def test_what_a_job_raises_reaches_the_caller_without_its_traceback() -> None:
    def job(client: Client) -> None:
        raise LookupError("from the vendor")

    async with workers_of(1) as workers:
        with pytest.raises(LookupError, match="from the vendor") as caught:
            await workers.run(job)
        frames = [entry.name for entry in caught.traceback]
        assert "job" not in frames
        assert await workers.run(lambda client: 7) == 7


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError(), GeneratorExit()])
async def test_nothing_that_a_job_raises_ends_a_worker(error: BaseException) -> None:
    def job(client: Client) -> None:
        raise error

    async with workers_of(1) as workers:
        with pytest.raises(type(error)):
            await workers.run(job)
        assert await workers.run(lambda client: 7) == 7
        assert workers.num_running == 0


async def test_a_caller_with_a_deadline_is_back_before_its_worker_is_let_go() -> None:
    gate = Gate()
    async with workers_of(1) as workers:
        with anyio.move_on_after(0.05) as scope:
            await workers.run(gate)
        assert scope.cancelled_caught
        assert workers.num_running == 1
        gate.let_go.set()
        assert await workers.run(lambda client: "next") == "next"


async def test_a_running_job_keeps_its_memory_and_no_longer() -> None:
    class Memory:
        pass

    gate = Gate()
    memory = Memory()
    alive = weakref.ref(memory)

    def job(kept: Memory, client: Client) -> None:
        gate(client)

    async with workers_of(1) as workers:
        with anyio.move_on_after(0.05):
            await workers.run(partial(job, memory))
        del memory
        gc.collect()
        assert alive() is not None
        gate.let_go.set()
        await until(lambda: workers.num_running == 0)
        gc.collect()
        assert alive() is None


async def test_a_cancelled_caller_takes_its_queued_jobs_back() -> None:
    gate = Gate()
    ran: list[int] = []
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        for number in range(5):
            with anyio.move_on_after(0.01):
                await workers.run(lambda client, number=number: ran.append(number))  # type: ignore[misc]
        gate.let_go.set()
        await workers.run(lambda client: ran.append(99))
        assert ran == [99]


async def test_a_batch_is_shared_out_over_all_workers_and_no_more() -> None:
    inside = 0
    most = 0
    lock = threading.Lock()
    all_in = threading.Barrier(3)

    def job(client: Client) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        all_in.wait(timeout=30)  # opens only when three run beside each other
        with lock:
            inside -= 1

    async with workers_of(3) as workers:
        await workers.run_all([job] * 12)
    assert most == 3


async def test_random_cancellation_loses_no_worker() -> None:
    chance = random.Random(7)
    async with workers_of(4) as workers:

        async def one() -> None:
            with anyio.move_on_after(chance.random() / 500):
                await workers.run(Client.use)

        for _ in range(50):
            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(one)
        gates = [Gate() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for gate in gates:
                tasks.start_soon(workers.run, gate)
            for gate in gates:
                await gate.wait_entered()  # all four at once
            for gate in gates:
                gate.let_go.set()
        assert workers.num_running == 0


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
        from tieredkv.backends._workers import ClientPool

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


def test_a_child_forked_while_jobs_run_and_wait_opens_and_closes_the_same_workers() -> None:
    script = """if True:
        import os
        import threading

        import anyio
        from tieredkv.backends._workers import Workers

        workers = Workers("backend", num_workers=1, connect=object, disconnect=lambda client: None)

        async def again():
            workers.open()
            assert await workers.run(lambda client: 5) == 5
            with anyio.fail_after(10):
                await workers.aclose()

        async def main():
            started, go_on = threading.Event(), threading.Event()
            workers.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(workers.run, lambda client: (started.set(), go_on.wait()))
                tasks.start_soon(workers.run, lambda client: None)
                while not started.is_set():
                    await anyio.sleep(0.001)
                child = os.fork()
                if not child:
                    thread = threading.Thread(target=anyio.run, args=(again,))
                    thread.start()
                    thread.join(30)
                    os._exit(workers.num_running or thread.is_alive())
                go_on.set()
            await workers.aclose()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        anyio.run(main)
    """
    threads = "ignore:This process:DeprecationWarning"  # that it has several is the point
    command = [sys.executable, "-W", "error", "-W", threads, "-c", script]
    subprocess.run(command, check=True, timeout=60)


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


async def test_closing_waits_for_running_jobs_and_each_closes_its_own_client() -> None:
    clients = Clients()
    gate = Gate()
    async with workers_of(2, clients) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        await workers.run(Client.use)
        with anyio.move_on_after(0.05) as scope:
            await workers.aclose()
        assert scope.cancelled_caught
        assert len(clients.open) == 1  # the busy one
        with pytest.raises(StoreClosedError):
            await workers.run(Client.use)
        gate.let_go.set()
    assert clients.open == []
    busy = next(client for client in clients.made if client.threads & {client.closed_by})
    assert busy.closed_by != threading.get_ident()


async def test_closing_settles_the_callers_that_wait_in_the_queue() -> None:
    gate = Gate()
    refused: list[str] = []

    async def queued() -> None:
        try:
            await workers.run(Client.use)
        except StoreClosedError as error:
            refused.append(str(error))

    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        tasks.start_soon(queued)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.05):
            await workers.aclose()
        await until(lambda: bool(refused))
        assert refused == ["backend 'test' was closed"]
        gate.let_go.set()


async def test_closing_twice_and_opening_again() -> None:
    clients = Clients()
    async with workers_of(1, clients) as workers:
        await workers.run(Client.use)
        await workers.aclose()
        await workers.aclose()
        workers.open()
        await workers.run(Client.use)
    assert len(clients.made) == 2
    assert clients.open == []


async def test_calls_before_opening_are_refused() -> None:
    workers: Workers[None] = Workers(
        "backend", num_workers=1, connect=lambda: None, disconnect=lambda client: None
    )
    with pytest.raises(StoreClosedError, match="backend is not open"):
        await workers.run(lambda client: 1)


def test_another_event_loop_is_refused_and_never_hangs() -> None:
    clients = Clients()
    workers = Workers(
        "backend", num_workers=1, connect=clients.connect, disconnect=clients.disconnect
    )

    async def first() -> None:
        workers.open()
        await workers.run(Client.use)

    async def second() -> None:
        with pytest.raises(WrongLoopError, match="backend belongs to the event loop"):
            await workers.run(Client.use)

    for backend in ("asyncio", "trio"):
        anyio.run(first, backend=backend)
        for other in ("asyncio", "trio"):
            anyio.run(second, backend=other)


def test_a_host_that_runs_for_ever_does_not_multiply_clients() -> None:
    import asyncio

    clients = Clients()
    workers = Workers(
        "backend", num_workers=2, connect=clients.connect, disconnect=clients.disconnect
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        async def opened() -> None:
            workers.open()

        asyncio.run_coroutine_threadsafe(opened(), loop).result(30)
        for _ in range(50):
            asyncio.run_coroutine_threadsafe(workers.run(Client.use), loop).result(30)
        assert len(clients.made) == 1
        asyncio.run_coroutine_threadsafe(workers.aclose(), loop).result(30)
        assert clients.open == []
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
