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


async def _logged(function: Callable[[ArgT], Coroutine[Any, Any, None]], argument: ArgT) -> None:
    try:
        await function(argument)
    except Exception:  # noqa: BLE001 - nobody else would hear of it
        _log.exception("a detached task failed: this is a defect of tieredkv")
