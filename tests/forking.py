"""Calls in a forked child."""

from __future__ import annotations

import contextvars
import os
import traceback
from collections.abc import Awaitable, Callable

import anyio


def fork_and_run(call: Callable[[], Awaitable[None]]) -> None:
    """Make a call in a forked child, in an event loop of its own, and wait for its end."""
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    failed = 1
    try:
        contextvars.Context().run(anyio.run, call)  # this one has the parent's loop
        failed = 0
    except BaseException:  # noqa: BLE001 - shown
        traceback.print_exc()
    finally:
        os._exit(failed)
