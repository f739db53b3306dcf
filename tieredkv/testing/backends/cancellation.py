"""Callers that give up: they come back at once, and their memory is theirs when nobody holds it."""

from __future__ import annotations

from functools import partial

import anyio
from anyio.lowlevel import checkpoint

from tieredkv.backends.base import Backend
from tieredkv.results import GetStatus
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import Gate, Landing, Source, give_up
from tieredkv.testing.content import content, gist

__all__ = ["CancellationConformance"]


class CancellationConformance(KitFixtures):
    """Cancellation of any call, at any time."""

    async def test_a_cancelled_read_comes_back_before_its_worker(self, backend: Backend) -> None:
        self.raw_put("slow", content("slow", 50_000))
        gate = Gate()

        def answer(_landed: bytes) -> GetStatus:
            gate.hold()
            return GetStatus.HIT

        landing = Landing("slow", 50_000, answer=answer)
        await give_up(lambda: backend.read_many([landing.request()]), gate.arrival)
        assert not gate.has_expired, "the call came back only when its worker did"
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
        await give_up(lambda: backend.read_many([landing.request()]), gate.arrival)
        if landing.is_lent:
            gate.open()
            await landing.returned()
        landing.refill(other)
        gate.open()
        for _ in range(10):
            again = Landing("slow", 50_000)
            await backend.read_many([again.request()])
            await self.write(backend, ("slow", value))
        await backend.aclose()  # waits until the worker has ended
        assert gist(landing.value) == gist(other)
        assert landing.guards_hold

    async def test_a_cancelled_write_is_done_whole_or_not_at_all(self, backend: Backend) -> None:
        old, new = content("old", 50_000), content("new", 50_000)
        await self.write(backend, ("slow", old))
        gate = Gate()
        source = Source("slow", new, on_seal=gate.hold)
        await give_up(lambda: backend.write_many([source.request()]), gate.arrival)
        assert not gate.has_expired, "the call came back only when its worker did"
        gate.open()
        await source.returned()
        await backend.aclose()  # waits until the worker has ended
        assert self.raw_get("slow") in (old, new)
        assert gist(source.value) == gist(new)

    async def test_a_write_given_up_before_a_worker_began_it_is_never_sent(
        self, backend: Backend
    ) -> None:
        counts = self.client_counts(backend)
        if counts is None:
            return
        _, num_workers = counts
        gates = [Gate() for _ in range(num_workers)]
        waiting = Source("waiting", b"value")
        async with anyio.create_task_group() as tasks:
            for number, gate in enumerate(gates):
                running = Source(f"running-{number}", b"value", on_seal=gate.hold)
                tasks.start_soon(backend.write_many, [running.request()])
                await gate.arrival()
            await give_up(lambda: backend.write_many([waiting.request()]), partial(_pass_by, 20))
            for gate in gates:
                gate.open()
        await waiting.returned()
        await backend.aclose()
        assert not waiting.threads
        assert self.raw_get("waiting") is None

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
                await give_up(call, partial(_pass_by, steps))
        for landing in landings:
            await landing.returned()
        landing = Landing("given up", 3000)
        (outcome,) = await backend.read_many([landing.request()])
        assert (outcome.status, landing.value) == (GetStatus.HIT, value)


async def _pass_by(steps: int) -> None:
    for _ in range(steps):
        await checkpoint()
