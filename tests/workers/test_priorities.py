"""Who goes first when workers are few."""

from __future__ import annotations

from functools import partial
from itertools import count

import anyio
import pytest

from tests.workers.parts import Client, Gate, workers_of
from tieredkv.backends._workers import Job, Priority, Workers

pytestmark = pytest.mark.anyio


async def test_reads_go_before_prefetches_and_these_before_writes() -> None:
    gate = Gate()
    order: list[Priority] = []
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        for priority in (Priority.WRITE, Priority.PREFETCH, Priority.READ):
            job = partial(_note, order, priority)
            tasks.start_soon(workers.run_all, [job], priority)
            await anyio.wait_all_tasks_blocked()
        gate.let_go.set()
    assert order == [Priority.READ, Priority.PREFETCH, Priority.WRITE]


async def test_a_prefetch_gives_way_between_its_jobs() -> None:
    gate = Gate()
    order: list[Priority] = []
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        rest = partial(_note, order, Priority.PREFETCH)
        jobs: list[Job[Client]] = [gate.stay, rest, rest]
        tasks.start_soon(workers.run_all, jobs, Priority.PREFETCH)
        await gate.wait_entered()
        tasks.start_soon(workers.run_all, [partial(_note, order, Priority.READ)])
        await anyio.wait_all_tasks_blocked()
        gate.let_go.set()
    assert order == [Priority.READ, Priority.PREFETCH, Priority.PREFETCH]


@pytest.mark.parametrize("endless", [(Priority.READ,), (Priority.READ, Priority.PREFETCH)])
async def test_nothing_is_overtaken_for_ever(endless: tuple[Priority, ...]) -> None:
    left = set(Priority) - set(endless)
    jobs = count()

    async def again(workers: Workers[Client], priority: Priority) -> None:
        while left:
            assert next(jobs) < 1000, f"{left} did not get their turn"
            await workers.run_all([Client.use], priority)

    async def once(workers: Workers[Client], priority: Priority) -> None:
        await workers.run_all([Client.use] * 5, priority)
        left.discard(priority)

    gate = Gate()
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        for priority in endless:
            for _ in range(3):
                tasks.start_soon(again, workers, priority)
        for priority in tuple(left):
            tasks.start_soon(once, workers, priority)
        await anyio.wait_all_tasks_blocked()
        gate.let_go.set()


async def test_who_was_overtaken_four_times_in_a_row_is_next() -> None:
    gate = Gate()
    order: list[Priority] = []
    async with workers_of(1) as workers, anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run, gate)
        await gate.wait_entered()
        for priority in Priority:
            for _ in range(10):
                tasks.start_soon(workers.run_all, [partial(_note, order, priority)], priority)
        await anyio.wait_all_tasks_blocked()
        gate.let_go.set()
    turns = "".join(priority.name[0] for priority in order)
    # A write and a prefetch do not count as overtaken by what is less urgent than they are.
    assert turns[:15] == "RRRRWPRRRWRPRRW"
    assert len(turns) == 30


def _note(order: list[Priority], priority: Priority, client: Client) -> None:
    order.append(priority)
