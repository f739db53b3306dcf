"""The only way from the event loop into threads.

::

    caller ── Workers.run(jobs) ──► Batch ──► queue ──► pump (detached task) ──► worker thread
       ▲                              │                                             │ jobs, one
       └────────── event ◄────────────┴───────────── all hops ended ◄───────────────┘ by one

Guarantees:

1. *The caller waits, it does not own.* Cancellation or a deadline ends the caller's wait at once.
   Jobs that no worker has begun are dropped then and never run; a job that has begun keeps its
   memory (it is referenced from the worker's stack) until the vendor call returns.
2. *At most `num_workers` hops and clients.* Pumps are counted on the loop, so the limiter that
   bounds the threads never makes anyone wait, and cannot lose a token to a cancellation.
3. *Clients are owned, not thread-local.* A worker thread prefers the client it used last, so a
   client stays with its thread, but anyio may replace threads as it likes: an idle client is handed
   on. A client is closed in a hop while idle, or by its own thread after the call it was busy with.
4. *A forked child starts afresh.* It never touches the clients of its parent.
5. *Nothing a job raises ends a pump.*
6. *The urgent first.* A free worker takes the most urgent batch that waits, of equals the oldest;
   a busy one leaves its batch for a more urgent one as soon as the job it is at has ended. What has
   been overtaken four times in a row goes next, so that it comes to its end beside endless others.
"""

from __future__ import annotations

import enum
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import EventLoopToken, current_token

from tieredkv.backends._client_pool import ClientPool, Holder
from tieredkv.errors import StoreClosedError, without_frames
from tieredkv.tasks import Detached, require_loop

__all__ = ["Priority", "Workers"]

ClientT = TypeVar("ClientT")
ResultT = TypeVar("ResultT")

Job: TypeAlias = Callable[[ClientT], None]


_PATIENCE: Final = 4
"""How often in a row the less urgent is overtaken."""


class Priority(enum.IntEnum):
    """Who goes first when workers are few."""

    READ = 0
    """Somebody waits for it."""
    PREFETCH = 1
    """Somebody will ask for it soon."""
    WRITE = 2


class _Batch(Generic[ClientT]):
    """Jobs that one caller waits for, shared out over several hops."""

    __slots__ = ("done", "error", "hops", "jobs", "priority")

    def __init__(self, jobs: Iterable[Job[ClientT]], hops: int, priority: Priority) -> None:
        self.jobs = deque(jobs)
        self.hops = hops
        self.priority = priority
        self.done = anyio.Event()
        self.error: BaseException | None = None

    def work(self, clients: ClientPool[ClientT], should_leave: Callable[[Priority], bool]) -> bool:
        """Run in a worker thread: one job after another until none is left. Never raises.

        Returns:
            Whether it has left jobs behind for something more urgent.
        """
        try:
            holder = clients.take()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self.error = without_frames(error)
            return False
        left = False
        try:
            while not left:
                try:
                    job = self.jobs.popleft()
                except IndexError:  # this hop or another has begun the last one
                    break
                job(holder.client)
                del job  # its memory is free as soon as it has ended
                left = should_leave(self.priority)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self.error = without_frames(error)
        try:
            clients.give_back(holder)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self.error = without_frames(error)
        return left

    def end_hop(self) -> None:
        self.hops -= 1
        if self.hops == 0:
            self.done.set()


class Workers(Generic[ClientT]):
    """Runs blocking jobs in at most `num_workers` threads at a time, each with its own client."""

    def __init__(
        self,
        owner: str,
        *,
        num_workers: int,
        connect: Callable[[], ClientT],
        disconnect: Callable[[ClientT], None],
    ) -> None:
        """Set up without touching the event loop or connecting.

        Args:
            owner: How errors call the owner.
            num_workers: Threads, and clients, that may be in use at a time.
            connect: Makes a client; called in worker threads, never more than `num_workers` live.
            disconnect: Closes an idle client; called in worker threads.
        """
        self.num_workers = num_workers
        self._owner = owner
        self._new_clients = partial(ClientPool, connect, disconnect)
        self._clients = self._new_clients()
        self._token: EventLoopToken | None = None
        self._queues: tuple[deque[_Batch[ClientT]], ...] = tuple(deque() for _ in Priority)
        self._overtaken = [0] * len(Priority)
        self._running = 0
        self._closing = False
        self._pid = os.getpid()

    @property
    def num_clients(self) -> int:
        """Clients that exist, busy ones included."""
        return self._clients.size

    @property
    def num_running(self) -> int:
        """Hops that are in a worker thread now."""
        return self._running

    def open(self) -> None:
        """Bind to the running event loop."""
        token = current_token()
        if (self._pid, self._token) != (os.getpid(), token):
            # What ran or waited in the parent, or on a loop that has ended, is none of ours.
            self._pid, self._token = os.getpid(), token
            self._running = 0
            self._queues = tuple(deque() for _ in Priority)
        # Made on the loop: one made elsewhere binds to the first loop that uses it.
        self._limiter = anyio.CapacityLimiter(self.num_workers)
        self._detached = Detached()
        self._idle = anyio.Event()
        self._close_error: Exception | None = None
        self._clients = self._new_clients()
        self._closing = False

    async def run(self, job: Callable[[ClientT], ResultT]) -> ResultT:
        """Run one job in a worker thread and return what it returns.

        Raises:
            StoreClosedError: Not open, or closed while the job was still queued.
            WrongLoopError: Opened on another event loop.
            BaseException: Whatever the job raises.
        """
        results: list[ResultT] = []
        await self.run_all([lambda client: results.append(job(client))])
        return results[0]

    async def run_all(
        self,
        jobs: Iterable[Job[ClientT]],
        priority: Priority = Priority.READ,
        *,
        most_hops: int | None = None,
    ) -> None:
        """Run jobs in worker threads, one hop a worker, and return when all have ended.

        A job should not raise: the first one that does ends its hop, and the jobs that are left
        then go undone if no other hop takes them.

        Args:
            jobs: What to run.
            priority: How urgent it is.
            most_hops: How many workers may share the jobs; all, if None.

        Raises:
            StoreClosedError: Not open, or closed while jobs were still queued.
            WrongLoopError: Opened on another event loop.
            BaseException: Whatever connecting or a job raised.
        """
        if self._token is None or self._closing:
            raise StoreClosedError(f"{self._owner} is not open")
        require_loop(self._token, self._owner)
        jobs = list(jobs)
        if not jobs:
            return
        hops = min(most_hops or self.num_workers, self.num_workers, len(jobs))
        batch = _Batch(jobs, hops, priority)
        del jobs  # the batch alone keeps them, and drops each when it has run
        for _ in range(batch.hops):
            if self._running < self.num_workers:
                self._running += 1
                self._detached.spawn(self._pump, batch)
            else:
                self._queues[priority].append(batch)
        try:
            await batch.done.wait()
        except BaseException:
            batch.jobs.clear()
            queue = self._queues[priority]
            waiting = [queued for queued in queue if queued is not batch]
            queue.clear()
            queue.extend(waiting)
            raise
        if batch.error is not None:
            raise batch.error

    async def aclose(self) -> None:
        """Refuse new jobs, drop the queued ones, close the clients, wait for the running hops.

        A caller that is cancelled leaves all that to run its course; a second call waits for it.
        """
        if self._token is None:
            return
        require_loop(self._token, self._owner)
        if not self._closing:
            self._closing = True
            while (batch := self._next()) is not None:
                if batch.jobs:
                    batch.jobs.clear()
                    batch.error = StoreClosedError(f"{self._owner} was closed")
                batch.end_hop()
            if idle := self._clients.retire():  # then fewer than num_workers hops run: no waiting
                self._running += 1
                self._detached.spawn(self._close_idle, idle)
            elif self._running == 0:
                self._idle.set()
        await self._idle.wait()
        if self._close_error is not None:
            raise self._close_error

    async def _close_idle(self, idle: list[Holder[ClientT]]) -> None:
        queues = self._queues
        try:
            await self._in_thread(partial(self._clients.close_all, idle))
        except Exception as error:  # noqa: BLE001 - handed to those who close
            self._close_error = without_frames(error)
        finally:
            self._end_hop(queues)

    async def _pump(self, batch: _Batch[ClientT] | None) -> None:
        """Run hops until the queue is empty; a detached task."""
        queues = self._queues
        try:
            while batch is not None:
                left = False
                try:
                    if batch.jobs:
                        left = await self._in_thread(
                            partial(batch.work, self._clients, self._should_leave)
                        )
                except BaseException:  # only the end of the event loop gets here
                    batch.error = StoreClosedError(f"{self._owner}: the event loop has ended")
                    raise
                finally:
                    if left and batch.jobs and not self._closing:
                        self._queues[batch.priority].appendleft(batch)  # its turn comes again
                    else:
                        if left and batch.jobs:
                            batch.jobs.clear()
                            batch.error = StoreClosedError(f"{self._owner} was closed")
                        batch.end_hop()
                batch = self._next()
        finally:
            self._end_hop(queues)

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Work in a worker thread; where none can be started, at once.

        From CPython 3.12 on nobody can start one while the interpreter ends. What is written then
        is worth more than an event loop that goes on.
        """
        began = False

        def begin() -> ResultT:
            nonlocal began
            began = True
            return work()

        try:
            return await to_thread.run_sync(begin, limiter=self._limiter)
        except RuntimeError:
            if began:
                raise
        return work()

    def _end_hop(self, queues: tuple[deque[_Batch[ClientT]], ...]) -> None:
        if self._queues is queues:  # else opened on another loop since
            self._running -= 1
            if self._closing and self._running == 0:
                self._idle.set()

    def _next(self) -> _Batch[ClientT] | None:
        """Take the most urgent batch that waits for a hop, or one that was overtaken too often."""
        waiting = [priority for priority in Priority if self._queues[priority]]
        if not waiting:
            return None
        tired = (other for other in reversed(waiting) if self._overtaken[other] >= _PATIENCE)
        chosen = next(tired, waiting[0])
        for priority in Priority:
            if priority not in waiting or priority is chosen:
                self._overtaken[priority] = 0
            elif priority > chosen:
                self._overtaken[priority] += 1
        return self._queues[chosen].popleft()

    def _should_leave(self, priority: Priority) -> bool:
        """Return, in a worker thread, whether something more urgent waits."""
        return any(self._queues[:priority])
