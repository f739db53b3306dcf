"""Hops: who waits, who owns, what a cancelled caller leaves behind."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref
from functools import partial

import anyio
import pytest

from tests.workers.parts import Client, Gate, until, workers_of

pytestmark = pytest.mark.anyio


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


async def test_a_batch_may_be_shared_out_over_fewer_workers() -> None:
    threads: set[int] = set()
    both_in = threading.Barrier(2)

    def job(client: Client) -> None:
        threads.add(threading.get_ident())
        both_in.wait(timeout=30)

    async with workers_of(3) as workers:
        await workers.run_all([job] * 8, most_hops=2)
    assert len(threads) == 2


async def test_an_empty_batch_ends_at_once() -> None:
    async with workers_of(1) as workers:
        await workers.run_all([])


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


async def test_who_gives_up_does_not_take_others_out_of_the_queue() -> None:
    gate, done = Gate(), []

    async def wait(scope: anyio.CancelScope, name: str) -> None:
        with scope:
            done.append(await workers.run(lambda client: name))

    scopes = [anyio.CancelScope() for _ in "abc"]
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        for scope, name in zip(scopes, "abc", strict=True):
            tasks.start_soon(wait, scope, name)
        await anyio.wait_all_tasks_blocked()
        scopes[1].cancel()
        await anyio.wait_all_tasks_blocked()
        gate.let_go.set()
    assert sorted(done) == ["a", "c"]
