"""Opening, closing, event loops, and what a backend may use meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import pytest
from anyio import from_thread, to_thread
from anyio.lowlevel import checkpoint

from tieredkv.backends.base import Backend, Capabilities
from tieredkv.errors import StoreClosedError, WrongLoopError
from tieredkv.results import GetStatus
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import PATIENCE_S, Gate, Landing, Source
from tieredkv.testing.content import content, gist

__all__ = ["LifecycleConformance"]

Call: TypeAlias = Callable[[Backend], Coroutine[Any, Any, object]]

_FOREIGN_THREADS: Final = 16
_MOST_BURSTS: Final = 20
_CALM_BURSTS: Final = 2


async def _list_all(backend: Backend) -> object:
    return [entry async for entry in backend.list_names()]


_BATCHES: Final[dict[str, Call]] = {
    "read": lambda backend: backend.read_many([Landing("name", 5).request()]),
    "write": lambda backend: backend.write_many([Source("name", b"value").request()]),
    "stat": lambda backend: backend.stat_many(["name"]),
    "delete": lambda backend: backend.delete_many(["name"]),
}


class LifecycleConformance(KitFixtures):
    """`Backend.open`, `Backend.aclose`, and use at the wrong time or place."""

    def test_a_backend_is_made_without_an_event_loop(self) -> None:
        backend = self.make_backend()
        assert isinstance(backend, Backend)
        assert backend.name
        assert isinstance(backend.capabilities, Capabilities)
        assert backend.deadline_s > 0

    async def test_use_before_opening_is_refused(self) -> None:
        await self._refuses(self.make_backend())

    async def test_use_after_closing_is_refused(self) -> None:
        async with self.opened() as backend:
            await self.write(backend, ("name", b"value"))
        await self._refuses(backend)
        assert self.raw_get("name") in (b"value", None)

    async def test_closing_twice_is_fine(self) -> None:
        backend = self.make_backend()
        await backend.aclose()
        async with self.opened() as backend:
            await backend.aclose()
        await backend.aclose()

    async def test_the_tasks_that_open_use_and_close_may_differ(self) -> None:
        backend = self.make_backend()
        calls: list[Callable[[], Coroutine[Any, Any, object]]] = [backend.open]
        calls += [partial(call, backend) for call in _BATCHES.values()]
        for call in (*calls, backend.aclose):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)

    async def test_another_event_loop_is_refused(
        self, backend: Backend, anyio_backend: str | tuple[str, dict[str, Any]]
    ) -> None:
        kind, options = anyio_backend if isinstance(anyio_backend, tuple) else (anyio_backend, {})

        async def elsewhere() -> None:
            with anyio.fail_after(PATIENCE_S):
                for call in _BATCHES.values():
                    with pytest.raises(WrongLoopError):
                        await call(backend)

        def run() -> None:
            anyio.run(elsewhere, backend=kind, backend_options=options)

        await to_thread.run_sync(run)
        await self.write(backend, ("name", b"value"))

    async def test_values_outlive_a_persistent_backend(self) -> None:
        values = {f"kept-{size}": content("kept", size) for size in self.sizes}
        async with self.opened() as backend:
            await self.write(backend, *values.items())
        if not backend.capabilities.persistent:
            return
        async with self.opened() as backend:
            landings = [Landing(name, len(value)) for name, value in values.items()]
            outcomes = await backend.read_many([landing.request() for landing in landings])
        assert [outcome.status for outcome in outcomes] == [GetStatus.HIT] * len(values)
        assert [gist(landing.value) for landing in landings] == list(map(gist, values.values()))

    async def test_closing_waits_for_what_runs(self) -> None:
        async with self.opened() as backend:
            gate = Gate()
            source = Source("running", b"value", on_seal=gate.hold)
            closed_behind_gate: list[bool] = []

            async def close() -> None:
                await backend.aclose()
                closed_behind_gate.append(not gate.is_open)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(backend.write_many, [source.request()])
                await gate.arrival()
                tasks.start_soon(close)
                for _ in range(100):
                    await checkpoint()
                await self._refuses(backend)
                gate.open()
        assert closed_behind_gate == [False]
        assert not source.is_lent

    async def test_closing_that_is_cancelled_still_frees_everything(self) -> None:
        expired = True
        async with self.opened() as backend:
            gate = Gate()
            source = Source("running", b"value", on_seal=gate.hold)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(backend.write_many, [source.request()])
                await gate.arrival()
                async with anyio.create_task_group() as closing:
                    closing.start_soon(backend.aclose)
                    for _ in range(10):
                        await checkpoint()
                    closing.cancel_scope.cancel()
                expired = gate.has_expired
                gate.open()
            await source.returned()
            await self._refuses(backend)
            with anyio.fail_after(PATIENCE_S):
                while (counts := self.client_counts(backend)) is not None and counts[0]:
                    await checkpoint()
        assert not expired, "the call to close came back only when the worker did"

    async def test_calls_beside_each_other_do_not_mix(self, backend: Backend) -> None:
        wrong: list[str] = []

        async def use(number: int) -> None:
            for round_ in range(4):
                value = content((number, round_), 2000 + 500 * number)
                names = [f"mixed-{number}-{place}" for place in range(3)]
                await self.write(backend, *((name, value) for name in names))
                landings = [Landing(name, len(value)) for name in names]
                await backend.read_many([landing.request() for landing in landings])
                wrong.extend(
                    name
                    for name, landing in zip(names, landings, strict=True)
                    if landing.value != value or not landing.guards_hold
                )

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(use, number)
        assert not wrong

    async def test_bursts_leave_no_more_clients_threads_and_descriptors(
        self, backend: Backend
    ) -> None:
        most = [0, 0]
        calm = 0
        for _ in range(_MOST_BURSTS):  # not every client has to exist after the first
            await self._burst(backend)
            counts = self.client_counts(backend)
            if counts is not None:
                existing, allowed = counts
                assert existing <= allowed
            descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - by number
            before, most = most, list(map(max, most, (descriptors, threading.active_count())))
            calm = calm + 1 if most == before else 0
            if calm == _CALM_BURSTS:
                return
        pytest.fail(f"descriptors and threads still grow after {_MOST_BURSTS} bursts: {most}")

    async def _burst(self, backend: Backend) -> None:
        """Make many calls while other code uses the threads that the last burst has left idle.

        So the calls meet new threads, as they do after a pause in which the old ones have ended.
        """
        value = content("burst", 10_000)
        busy = anyio.Event()
        release = threading.Event()
        limiter = anyio.CapacityLimiter(_FOREIGN_THREADS)

        async def occupy() -> None:
            def hold() -> None:
                if limiter.borrowed_tokens == _FOREIGN_THREADS:
                    from_thread.run_sync(busy.set)
                release.wait(PATIENCE_S)

            await to_thread.run_sync(hold, limiter=limiter)

        async def use(number: int) -> None:
            await self.write(backend, (f"burst-{number}", value))
            landing = Landing(f"burst-{number}", len(value))
            (outcome,) = await backend.read_many([landing.request()])
            assert outcome.status is GetStatus.HIT

        async with anyio.create_task_group() as foreign:
            for _ in range(_FOREIGN_THREADS):
                foreign.start_soon(occupy)
            await busy.wait()
            async with anyio.create_task_group() as calls:
                for number in range(24):
                    calls.start_soon(use, number)
            release.set()

    async def _refuses(self, backend: Backend) -> None:
        for call in (*_BATCHES.values(), _list_all):
            with pytest.raises(StoreClosedError):
                await call(backend)
