"""Clients that threads take turns with: one thread at a time, each known to its pool."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ClientPool", "Holder"]

ClientT = TypeVar("ClientT")


class Holder(Generic[ClientT]):
    """One client and the thread that used it last."""

    __slots__ = ("client", "thread_id")

    def __init__(self, client: ClientT, thread_id: int) -> None:
        self.client = client
        self.thread_id = thread_id


class ClientPool(Generic[ClientT]):
    """The clients of one backend: each busy in one thread or idle, all of them known.

    Called from worker threads. The lock guards the lists only; vendor code runs outside of it.
    """

    def __init__(
        self, connect: Callable[[], ClientT], disconnect: Callable[[ClientT], None]
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._idle: list[Holder[ClientT]] = []
        self._pid = os.getpid()
        self._size = 0
        self._retired = False

    @property
    def size(self) -> int:
        """Clients that exist, busy ones included."""
        return self._size

    def take(self) -> Holder[ClientT]:
        """Return the client this thread used last, else any idle one, else a new one.

        Raises:
            Exception: Whatever `connect` raises.
        """
        thread_id = threading.get_ident()
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._idle, self._size = os.getpid(), [], 0
            for holder in reversed(self._idle):
                if holder.thread_id == thread_id:
                    self._idle.remove(holder)
                    return holder
            if self._idle:
                holder = self._idle.pop()
                holder.thread_id = thread_id
                return holder
            self._size += 1
        try:
            return Holder(self._connect(), thread_id)
        except BaseException:
            with self._lock:
                self._size -= 1
            raise

    def give_back(self, holder: Holder[ClientT]) -> None:
        """Make a client idle, or close it here, in the thread that used it, after `retire`."""
        with self._lock:
            if not self._retired:
                self._idle.append(holder)
                return
        self._close(holder)

    def retire(self) -> list[Holder[ClientT]]:
        """Have busy clients closed as they come back; return the idle ones for `close_all`."""
        with self._lock:
            self._retired = True
            idle, self._idle = self._idle, []
        return idle

    def close_all(self, holders: list[Holder[ClientT]]) -> None:
        """Close clients that nobody uses, all of them before it raises what one of them raised."""
        with contextlib.ExitStack() as closing:
            for holder in holders:
                closing.callback(self._close, holder)

    def _close(self, holder: Holder[ClientT]) -> None:
        with self._lock:
            self._size -= 1
        self._disconnect(holder.client)
