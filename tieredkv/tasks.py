"""Detached tasks: work that goes on when the call which started it has left.

A store enters no task group and no cancel scope across calls, so that it may be opened in one task
of a loop and closed in another. What must outlive a call (a hop that a worker thread still runs, a
write that is still pending) therefore runs in tasks of the event loop itself: a referenced asyncio
task, a trio system task. Neither may raise: an exception would be lost or would end the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from typing import Any, Final, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from tieredkv.errors import WrongLoopError

__all__ = ["Detached", "require_loop"]

ResultT = TypeVar("ResultT")
ArgT = TypeVar("ArgT")

_log: Final = logging.getLogger(__name__)


def require_loop(token: EventLoopToken, what: str) -> None:
    """Check that the caller runs on the event loop that `token` stands for.

    Raises:
        WrongLoopError: It runs on another one.
    """
    if current_token() != token:
        raise WrongLoopError(
            f"{what} belongs to the event loop it was opened on; open another one in this loop"
        )


class Detached:
    """The detached tasks of one owner, on the event loop where they are spawned.

    Cancelling a caller's task never reaches them. They end by themselves.
    """

    def __init__(self) -> None:
        self._tasks: set[object] = set()

    @property
    def pending(self) -> int:
        """Number of tasks that have not ended."""
        return len(self._tasks)

    def spawn(self, function: Callable[[ArgT], Coroutine[Any, Any, None]], argument: ArgT) -> None:
        """Start ``function(argument)``; it runs to its end whatever happens to the caller."""
        loop = current_token().native_token
        if isinstance(loop, asyncio.AbstractEventLoop):
            task = loop.create_task(_logged(function, argument))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        import trio  # noqa: PLC0415 - an optional event loop

        handle = object()
        self._tasks.add(handle)

        async def run() -> None:
            try:
                await _logged(function, argument)
            finally:
                self._tasks.discard(handle)

        # As asyncio does it: what is traced belongs to the caller's trace.
        trio.lowlevel.spawn_system_task(run, context=copy_context())

    async def gather(
        self, calls: Iterable[Callable[[], Coroutine[Any, Any, ResultT]]]
    ) -> list[ResultT]:
        """Run calls beside each other and return their results, in order.

        The calls must not raise. A caller that is cancelled leaves them running.
        """
        calls = list(calls)
        results: dict[int, ResultT] = {}
        running = set(range(len(calls)))
        done = anyio.Event()

        async def run(place: int) -> None:
            try:
                results[place] = await calls[place]()
            finally:
                running.discard(place)
                if not running:
                    done.set()

        for place in range(len(calls)):
            self.spawn(run, place)
        if calls:
            await done.wait()
        return [results[place] for place in range(len(calls))]

    async def to_its_end(self, call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Return what a call returns; a caller that is cancelled is so only when it has ended.

        No cancel scope keeps `asyncio.Task.cancel` away, which is what `asyncio.timeout` does.

        Raises:
            Exception: Whatever the call raises.
        """
        results: list[ResultT] = []
        failure: BaseException | None = None
        done = anyio.Event()

        async def run(_: object) -> None:
            nonlocal failure
            try:
                results.append(await call())
            except Exception as error:  # noqa: BLE001 - handed to the caller
                failure = error
            except BaseException as error:  # only the end of the event loop gets here
                failure = error
                raise
            finally:
                done.set()

        self.spawn(run, None)
        cancelled: asyncio.CancelledError | None = None
        while not done.is_set():
            try:
                with anyio.CancelScope(shield=True):
                    await done.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        failure = cancelled or failure
        if failure is not None:
            try:
                raise failure
            finally:
                del failure, cancelled  # else they and this frame would keep each other
        return results[0]


async def _logged(function: Callable[[ArgT], Coroutine[Any, Any, None]], argument: ArgT) -> None:
    try:
        await function(argument)
    except Exception:  # noqa: BLE001 - nobody else would hear of it
        _log.exception("a detached task failed: this is a defect of tieredkv")
