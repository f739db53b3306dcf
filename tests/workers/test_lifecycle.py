"""Opening, closing, and event loops that come and go."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from tests.workers.parts import Client, Clients, Gate, until, workers_of
from tieredkv.backends._workers import Workers
from tieredkv.errors import StoreClosedError, WrongLoopError

pytestmark = pytest.mark.anyio


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


async def test_closing_does_not_refuse_jobs_that_have_all_begun() -> None:
    other, last = Gate(), Gate()
    async with workers_of(2) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, other)
        await other.wait_entered()
        # The second of its hops still waits in the queue when the first is at the last job.
        tasks.start_soon(workers.run_all, [Client.use, last.stay])
        await last.wait_entered()
        with anyio.move_on_after(0.05):
            await workers.aclose()
        last.let_go.set()
        other.let_go.set()


async def test_workers_that_open_again_count_what_still_runs() -> None:
    clients, gate = Clients(), Gate()
    ran: list[Client] = []
    async with workers_of(1, clients) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        with anyio.move_on_after(0.05):
            await workers.aclose()
        workers.open()
        assert workers.num_running == 1
        tasks.start_soon(workers.run, ran.append)
        await anyio.wait_all_tasks_blocked()
        assert not ran
        gate.let_go.set()
    assert ran
    assert clients.open == []


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


async def test_closing_ends_with_the_last_job_that_runs() -> None:
    gate = Gate()
    ended: list[str] = []

    async def close(workers: Workers[Client]) -> None:
        await workers.aclose()
        ended.append("closing")

    async def run(workers: Workers[Client]) -> None:
        await workers.run(gate)
        ended.append("the job")

    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(run, workers)
        await gate.wait_entered()
        tasks.start_soon(close, workers)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
        gate.let_go.set()
    assert sorted(ended) == ["closing", "the job"]


async def test_clients_that_cannot_be_closed_are_told_of_and_the_others_closed() -> None:
    clients = Clients()

    def disconnect(client: Client) -> None:
        clients.disconnect(client)
        if client is not clients.made[1]:
            raise OSError(f"client {clients.made.index(client)} has no end")

    workers = Workers("backend", num_workers=3, connect=clients.connect, disconnect=disconnect)
    workers.open()
    together = threading.Barrier(3)

    def use(client: Client) -> None:
        together.wait(30)
        client.use()

    await workers.run_all([use] * 3)
    assert len(clients.made) == 3
    for _ in range(2):  # whoever closes is told
        with pytest.raises(OSError, match="has no end"):
            await workers.aclose()
    assert clients.open == []
    assert workers.num_clients == 0


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


@pytest.mark.parametrize("end", ["cancelling", "at once"])
def test_a_loop_that_ends_while_a_job_runs_leaves_workers_that_can_be_opened_again(
    end: str,
) -> None:
    clients = Clients()
    gate = Gate()
    workers = Workers(
        "backend", num_workers=1, connect=clients.connect, disconnect=clients.disconnect
    )

    async def begin() -> None:
        workers.open()
        callers.append(asyncio.ensure_future(workers.run(gate)))
        await gate.wait_entered()

    async def refused() -> None:
        with pytest.raises(WrongLoopError, match="backend belongs to the event loop"):
            await workers.run(Client.use)

    async def again() -> None:
        workers.open()
        with anyio.fail_after(30):
            assert await workers.run(lambda client: 5) == 5
            gate.let_go.set()
            await workers.aclose()

    callers: list[asyncio.Future[str]] = []
    if end == "cancelling":
        asyncio.run(begin())
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        loop.close()
    assert callers[0].cancelled() == (end == "cancelling")
    anyio.run(refused)
    anyio.run(again)
