"""Requests that watch over their memory: guards around it, and whether anybody still holds it."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio import from_thread
from anyio.lowlevel import checkpoint, current_token

from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.results import GetStatus

__all__ = [
    "DEFECTS",
    "PATIENCE_S",
    "Gate",
    "Landing",
    "Raising",
    "RecordingCheck",
    "Source",
    "give_up",
]

PATIENCE_S: Final = 20.0
"""How long anything is waited for before its absence is a failure."""

_GUARD_BYTES: Final = 64
_FILL: Final = 0xA5


class Gate:
    """Holds worker threads until it is opened; made on the event loop.

    A worker that is held for longer than `PATIENCE_S` goes on, so that a defect ends in a failed
    test and not in a hang.

    Attributes:
        has_expired: Whether a worker went on because the gate was not opened in time.
    """

    def __init__(self) -> None:
        self._loop_thread = threading.get_ident()
        self._token = current_token()
        self._arrived = anyio.Event()
        self._opened = threading.Event()
        self.has_expired: bool = False

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._opened.is_set()

    def hold(self) -> None:
        """Wait; called in a worker thread."""
        if threading.get_ident() == self._loop_thread:
            return  # to wait here would stop everything; the test sees that nobody has arrived
        from_thread.run_sync(self._arrived.set, token=self._token)
        if not self._opened.wait(PATIENCE_S):
            self.has_expired = True

    async def arrival(self) -> None:
        """Wait until a worker is held.

        Raises:
            TimeoutError: None comes.
        """
        with anyio.fail_after(PATIENCE_S):
            await self._arrived.wait()

    def open(self) -> None:
        """Let everybody go on."""
        self._opened.set()


class _AbruptError(BaseException):
    """What `except Exception` lets through."""


DEFECTS: Final = (OSError, MemoryError, _AbruptError)
"""What a seal or a check may raise, and a worker must survive."""


class Raising:
    """Raises an error when it is called, in place of a seal or a check's answer."""

    def __init__(self, error: BaseException) -> None:
        """Take the error."""
        self._error = error

    def __call__(self, *_: object) -> GetStatus:
        """Raise it."""
        raise self._error


class _Memory:
    """Bytes between guards, lent to a request; knows whether the loan has come back.

    Every view of the bytes is one of `_exporter`, a ctypes array, which is therefore alive as long
    as one of them is. The memory itself stays, so it shows what is written to it afterwards.
    """

    def __init__(self, nbytes: int) -> None:
        self._region = bytearray([_FILL]) * (nbytes + 2 * _GUARD_BYTES)
        self.nbytes = nbytes

    def lend(self) -> memoryview:
        exporter = (ctypes.c_char * len(self._region)).from_buffer(self._region)
        self._exporter = weakref.ref(exporter)
        return memoryview(exporter).cast("B")[_GUARD_BYTES : _GUARD_BYTES + self.nbytes]

    @property
    def value(self) -> bytes:
        """The bytes between the guards."""
        return bytes(self._region[_GUARD_BYTES : _GUARD_BYTES + self.nbytes])

    @property
    def guards_hold(self) -> bool:
        """Whether nothing has been written outside of the bytes."""
        guard = bytes([_FILL]) * _GUARD_BYTES
        return self._region.startswith(guard) and self._region.endswith(guard)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has been written at all."""
        return self._region == bytes([_FILL]) * len(self._region)

    @property
    def is_lent(self) -> bool:
        """Whether somebody still holds a view of the bytes."""
        return self._exporter() is not None

    async def returned(self) -> None:
        """Wait until nobody holds a view of the bytes.

        Raises:
            TimeoutError: Somebody keeps one.
        """
        with anyio.fail_after(PATIENCE_S):
            while self.is_lent:
                await checkpoint()

    def refill(self, value: bytes) -> None:
        """Use the bytes for something else, as a store does."""
        self._region[_GUARD_BYTES : _GUARD_BYTES + self.nbytes] = value


class RecordingCheck:
    """A check with a fixed answer, or one that depends on what has landed.

    Attributes:
        threads: Identities of the threads that it was called in.
        num_results: How often it was asked for its answer.
        fed: What it was fed, in order.
        seen: What had landed when it was asked.
    """

    def __init__(
        self,
        landed: Callable[[], bytes],
        answer: GetStatus | Callable[[bytes], GetStatus] = GetStatus.HIT,
    ) -> None:
        """Set up.

        Args:
            landed: Returns what has landed, without keeping a view of it.
            answer: What to say, or a function of what has landed.
        """
        self._landed = landed
        self._answer = answer
        self.threads: set[int] = set()
        self.num_results: int = 0
        self.fed: bytearray = bytearray()
        self.seen: bytes = b""

    def feed(self, landed: memoryview) -> None:
        """See `ReadCheck`."""
        self.threads.add(threading.get_ident())
        self.fed += landed

    def result(self) -> GetStatus:
        """See `ReadCheck`."""
        self.threads.add(threading.get_ident())
        self.num_results += 1
        self.seen = self._landed()
        return self._answer(self.seen) if callable(self._answer) else self._answer


class Landing(_Memory):
    """Memory for one read and the request that lands there.

    Attributes:
        name: The wire name.
        nbytes: The size that is asked for.
        check: The request's check.
    """

    def __init__(
        self,
        name: str,
        nbytes: int,
        *,
        answer: GetStatus | Callable[[bytes], GetStatus] = GetStatus.HIT,
        split_at: int | None = None,
    ) -> None:
        """Set up.

        Args:
            name: Wire name to ask for.
            nbytes: Size to ask for.
            answer: What the check says, or a function of what has landed, called in the worker.
            split_at: Size of the first of two buffers; None for one buffer.
        """
        super().__init__(nbytes)
        self.name = name
        view = self.lend()
        buffers = (view,) if split_at is None else (view[:split_at], view[split_at:])
        self.check: RecordingCheck = RecordingCheck(lambda: self.value, answer)
        self._request: ReadRequest | None = ReadRequest(name, buffers, self.check)

    def request(self) -> ReadRequest:
        """Return the request and forget it: from now on only the callers keep its memory."""
        request, self._request = self._request, None
        assert request is not None, "a landing is for one read"
        return request


class Source(_Memory):
    """Memory that one write takes its value from, and the request that does.

    Attributes:
        threads: Identities of the threads that the value was sealed in.
    """

    def __init__(
        self,
        name: str,
        value: bytes,
        *,
        ttl_s: float | None = None,
        on_seal: Callable[[], object] = bool,
    ) -> None:
        """Set up.

        Args:
            name: Wire name to write.
            value: What to write.
            ttl_s: See `WriteRequest`.
            on_seal: Called in the worker when the value is sealed; may raise.
        """
        super().__init__(len(value))
        self.refill(value)
        self.threads: set[int] = set()
        view = self.lend().toreadonly()
        threads = self.threads

        def seal() -> memoryview:
            threads.add(threading.get_ident())
            on_seal()
            return view

        self._request: WriteRequest | None = WriteRequest(name, len(value), seal, ttl_s)

    def request(self) -> WriteRequest:
        """Return the request and forget it: from now on only the callers keep its memory."""
        request, self._request = self._request, None
        assert request is not None, "a source is for one write"
        return request


async def give_up(
    call: Callable[[], Awaitable[object]], until: Callable[[], Awaitable[None]]
) -> None:
    """Make a call and cancel it when `until` returns; return when it has come back."""
    # A cancelled task group would keep the call's frames, and so its memory, in a cycle.
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await call()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until()
        scope.cancel()
