"""Callers that give up: they come back at once, and their memory is theirs when nobody holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.lowlevel import checkpoint

from tieredkv.backends.base import Backend
from tieredkv.results import GetStatus
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import Gate, Landing, Source
from tieredkv.testing.content import content

__all__ = ["CancellationConformance"]


class CancellationConformance(KitFixtures):
    """Cancellation of any call, at any time."""

    async def test_a_cancelled_read_leaves_its_memory_to_the_worker(self, backend: Backend) -> None:
        self.raw_put("slow", content("slow", 50_000))
        gate = Gate()

        def answer(_landed: bytes) -> GetStatus:
            gate.hold()
            return GetStatus.HIT

        landing = Landing("slow", 50_000, answer=answer)
        await _give_up(lambda: backend.read_many([landing.request()]), gate.arrival)
        assert not gate.is_open, "the call came back only when its worker did"
        assert landing.is_lent, "a worker has the memory and nobody keeps it"
        gate.open()
        await landing.returned()

    async def test_memory_that_came_back_is_not_touched_again(self, backend: Backend) -> None:
        value, other = content("old", 50_000), content("other", 50_000)
        self.raw_put("slow", value)
        gate = Gate()

        def answer(_landed: bytes) -> GetStatus:
            gate.hold()
            return GetStatus.HIT

        landing = Landing("slow", 50_000, answer=answer)
        await _give_up(lambda: backend.read_many([landing.request()]), gate.arrival)
        gate.open()
        await landing.returned()
        landing.refill(other)
        for _ in range(10):
            again = Landing("slow", 50_000)
            await backend.read_many([again.request()])
            await self.write(backend, ("slow", value))
        assert landing.value == other
        assert landing.guards_hold

    async def test_a_cancelled_write_is_done_whole_or_not_at_all(self, backend: Backend) -> None:
        old, new = content("old", 50_000), content("new", 50_000)
        await self.write(backend, ("slow", old))
        gate = Gate()
        source = Source("slow", new, on_seal=gate.hold)
        await _give_up(lambda: backend.write_many([source.request()]), gate.arrival)
        assert not gate.is_open, "the call came back only when its worker did"
        assert source.is_lent, "a worker has the memory and nobody keeps it"
        gate.open()
        await source.returned()
        await backend.aclose()  # waits until the worker has ended
        assert self.raw_get("slow") in (old, new)
        assert source.value == new

    async def test_calls_that_are_cancelled_at_any_point_do_no_harm(self, backend: Backend) -> None:
        value = content("given up", 3000)
        self.raw_put("given up", value)

        async def list_all() -> None:
            async for _ in backend.list_names():
                pass

        landings: list[Landing] = []

        async def read() -> None:
            landings.append(Landing("given up", 3000))
            await backend.read_many([landings[-1].request()])

        async def write() -> None:
            await self.write(backend, ("given up", value))

        for steps in range(8):
            for call in (read, write, list_all, lambda: backend.stat_many(["given up"])):
                await _give_up(call, partial(_pass_by, steps))
        for landing in landings:
            await landing.returned()
        landing = Landing("given up", 3000)
        (outcome,) = await backend.read_many([landing.request()])
        assert (outcome.status, landing.value) == (GetStatus.HIT, value)


async def _pass_by(steps: int) -> None:
    for _ in range(steps):
        await checkpoint()


async def _give_up(
    call: Callable[[], Awaitable[object]], until: Callable[[], Awaitable[None]]
) -> None:
    """Make a call and cancel it when `until` returns."""
    # A cancelled task group would keep the call's frames, and so its memory, in a cycle.
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await call()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until()
        scope.cancel()
