"""Calls that are cancelled at a place of one's choice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Literal, TypeAlias

import anyio
import sniffio
from anyio.lowlevel import checkpoint

Way: TypeAlias = Literal["scope", "task", "woken"]

WAYS: Final[dict[str, tuple[Way, ...]]] = {
    "asyncio": ("scope", "task", "woken"),
    "trio": ("scope",),
}
"""Event loop → how a call can be cancelled there.

``scope``: by a cancel scope around it. ``task``: by `asyncio.Task.cancel`, as `asyncio.timeout`
does, which no scope keeps away. ``woken``: the same, when what the call waited for has just
happened.
"""


class _Watched:
    """Awaits a call, and lets it be cancelled at its n-th wait."""

    def __init__(
        self, call: Coroutine[Any, Any, object], place: int, way: Way, scope: anyio.CancelScope
    ) -> None:
        self._call = call
        self._place = place
        self._way = way
        self._scope = scope
        self.waits = 0

    def cancel(self) -> None:
        if self._way == "scope":
            self._scope.cancel()
        elif self._way == "task":
            _this_task().cancel()

    def __await__(self) -> Generator[Any, Any, None]:
        resume: Callable[[Any], Any] = self._call.send
        argument: object = None
        while True:
            try:
                waited_for = resume(argument)
            except StopIteration:
                return
            finally:
                argument = None  # else an error and its frames would keep each other
            self.waits += 1
            here = self.waits == self._place
            if here:
                self.cancel()
            try:
                argument = yield waited_for
            except BaseException as error:  # noqa: BLE001 - it is the call's
                resume, argument = self._call.throw, error
            else:
                resume = self._call.send
                if here and self._way == "woken":
                    resume, argument = self._call.throw, asyncio.CancelledError()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def interrupted(call: Coroutine[Any, Any, object], place: int, way: Way) -> bool:
    """Run a call and cancel it at its n-th wait, or before it begins; return if it came so far."""
    with anyio.CancelScope() as scope:
        watched = _Watched(call, place, way, scope)
        if place == 0:
            watched.cancel()
        try:
            await watched
            if way == "task":
                await checkpoint()  # where it is cancelled, if it has not waited
        except asyncio.CancelledError:
            if way == "scope":
                raise
            while _this_task().cancelling():
                _this_task().uncancel()
    return watched.waits >= place


def ways() -> tuple[Way, ...]:
    """Return how a call can be cancelled on the running event loop."""
    return WAYS[sniffio.current_async_library()]
