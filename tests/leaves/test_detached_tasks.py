"""Detached tasks and pacing: work that outlives its caller, and work that gives way."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint, current_token

from tieredkv.config import KiB, MiB
from tieredkv.errors import WrongLoopError
from tieredkv.tasks import Detached, require_loop
from tieredkv.tiers.pacing import BUDGET_BYTES, HIT_BYTES, Pacer

pytestmark = pytest.mark.anyio


class TestDetached:
    async def test_work_goes_on_when_its_caller_is_cancelled(self) -> None:
        detached = Detached()
        started, go_on, done = anyio.Event(), anyio.Event(), anyio.Event()

        async def work(word: str) -> None:
            started.set()
            await go_on.wait()
            assert word == "argument"
            done.set()

        async def call() -> None:
            detached.spawn(work, "argument")
            await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await started.wait()
            group.cancel_scope.cancel()
        assert detached.pending == 1
        go_on.set()
        await done.wait()
        while detached.pending:
            await checkpoint()

    async def test_nobody_needs_to_hold_the_task(self) -> None:
        detached = Detached()
        go_on, done = anyio.Event(), anyio.Event()

        async def work(event: anyio.Event) -> None:
            await event.wait()
            done.set()

        detached.spawn(work, go_on)
        await checkpoint()
        gc.collect()
        go_on.set()
        await done.wait()

    async def test_a_cancel_scope_around_the_caller_does_not_reach_the_work(self) -> None:
        detached = Detached()
        go_on, done = anyio.Event(), anyio.Event()

        async def work(event: anyio.Event) -> None:
            await event.wait()
            await checkpoint()
            done.set()

        with anyio.CancelScope() as scope:
            detached.spawn(work, go_on)
            scope.cancel()
            await checkpoint()
        go_on.set()
        await done.wait()

    async def test_a_failure_is_logged_and_ends_nothing_else(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        detached = Detached()

        async def work(word: str) -> None:
            await checkpoint()
            raise LookupError(word)

        with caplog.at_level(logging.ERROR, "tieredkv.tasks"):
            detached.spawn(work, "first")
            while detached.pending:
                await checkpoint()
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[0] is LookupError


class TestGather:
    async def test_results_come_in_order_whatever_ends_first(self) -> None:
        detached = Detached()
        turns = [anyio.Event() for _ in range(5)]
        turns[-1].set()

        async def call(place: int) -> int:
            await turns[place].wait()  # the last one goes first
            if place:
                turns[place - 1].set()
            return place * 10

        results = await detached.gather(partial(call, place) for place in range(5))
        assert results == [0, 10, 20, 30, 40]

    async def test_of_nothing(self) -> None:
        assert await Detached().gather([]) == []

    async def test_they_run_beside_each_other(self) -> None:
        detached = Detached()
        here = [anyio.Event(), anyio.Event()]

        async def call(place: int) -> int:
            here[place].set()
            await here[1 - place].wait()
            return place

        assert await detached.gather([partial(call, 0), partial(call, 1)]) == [0, 1]

    async def test_a_cancelled_caller_leaves_them_running(self) -> None:
        detached = Detached()
        go_on = anyio.Event()
        ended: list[int] = []

        async def call(place: int) -> int:
            await go_on.wait()
            ended.append(place)
            return place

        calls: list[Callable[[], Coroutine[None, None, int]]] = [partial(call, n) for n in range(3)]
        with anyio.CancelScope() as scope:
            scope.cancel()
            await detached.gather(calls)
        assert scope.cancelled_caught
        assert detached.pending == 3
        go_on.set()
        while detached.pending:
            await checkpoint()
        assert sorted(ended) == [0, 1, 2]


class TestLoops:
    async def test_the_same_loop_is_fine(self) -> None:
        require_loop(current_token(), "the thing")

    async def test_another_loop_is_refused(self) -> None:
        here = current_token()

        async def elsewhere() -> None:
            with pytest.raises(WrongLoopError, match="the thing belongs to the event loop"):
                require_loop(here, "the thing")

        await anyio.to_thread.run_sync(lambda: anyio.run(elsewhere))


@pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"], indirect=False
)
async def test_eager_tasks_make_no_difference(anyio_backend: object) -> None:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))  # from Python 3.12 on
    try:
        detached = Detached()

        async def call(place: int) -> int:
            if place % 2:
                await checkpoint()
            return place

        assert await detached.gather(partial(call, n) for n in range(4)) == [0, 1, 2, 3]
        while detached.pending:
            await checkpoint()
    finally:
        loop.set_task_factory(None)


class TestPacer:
    @pytest.fixture
    def pauses(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Grow by one at each checkpoint of the pacer."""
        taken: list[int] = []

        async def counted() -> None:
            taken.append(1)
            await checkpoint()

        monkeypatch.setattr("tieredkv.tiers.pacing.checkpoint", counted)
        return taken

    @pytest.mark.parametrize(
        ("nbytes", "expected"),
        [
            (0, 0),
            (1, 0),
            (4 * MiB, 0),
            (4 * MiB + 1, 1),
            (8 * MiB, 1),
            (8 * MiB + 1, 2),
            (17 * MiB + 5, 4),
        ],
    )
    async def test_a_copy_gives_way_after_each_4_mib(
        self, pauses: list[int], nbytes: int, expected: int
    ) -> None:
        source = bytes(range(251)) * (nbytes // 251 + 1)
        target = bytearray(nbytes + 10)
        await Pacer().copy(memoryview(target), memoryview(source)[:nbytes])
        assert target[:nbytes] == source[:nbytes]
        assert target[nbytes:] == bytes(10)
        assert len(pauses) == expected

    async def test_small_copies_add_up(self, pauses: list[int]) -> None:
        pacer = Pacer()
        target, source = memoryview(bytearray(64 * KiB)), memoryview(bytes(64 * KiB))
        for _ in range(129):
            await pacer.copy(target, source)
        assert len(pauses) == 2

    async def test_a_pause_is_due_after_about_a_millisecond_of_hits(self) -> None:
        assert BUDGET_BYTES // HIT_BYTES == 256  # of 4 us each
        pacer = Pacer()
        pacer.spent += BUDGET_BYTES
        await pacer.pause()
        assert pacer.spent == 0

    async def test_others_run_during_a_copy(self) -> None:
        turns: list[str] = []

        async def other() -> None:
            turns.append("other")

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await Pacer().copy(memoryview(bytearray(9 * MiB)), memoryview(bytes(9 * MiB)))
            turns.append("copied")
        assert turns == ["other", "copied"]

    async def test_a_copy_can_be_cancelled_where_it_gives_way(self) -> None:
        target = bytearray(16 * MiB)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await Pacer().copy(memoryview(target), memoryview(b"\x01" * len(target)))
        assert scope.cancelled_caught
        assert target.count(1) == 4 * MiB
