"""What the tests of the workers are made of."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from tieredkv.backends._workers import Workers


class Client:
    """Remembers who used it; two users at a time are an error."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.closed_by: int | None = None
        self._busy = threading.Lock()

    def use(self) -> None:
        assert self._busy.acquire(blocking=False), "two threads use one client"
        try:
            assert self.closed_by is None, "used after it was closed"
            self.threads.add(threading.get_ident())
        finally:
            self._busy.release()


class Clients:
    """Makes clients and keeps all of them."""

    def __init__(self) -> None:
        self.made: list[Client] = []

    def connect(self) -> Client:
        client = Client()
        self.made.append(client)
        return client

    def disconnect(self, client: Client) -> None:
        assert client.closed_by is None, "closed twice"
        client.closed_by = threading.get_ident()

    @property
    def open(self) -> list[Client]:
        return [client for client in self.made if client.closed_by is None]


@asynccontextmanager
async def workers_of(
    num_workers: int, clients: Clients | None = None
) -> AsyncIterator[Workers[Client]]:
    clients = clients or Clients()
    workers = Workers(
        "backend 'test'",
        num_workers=num_workers,
        connect=clients.connect,
        disconnect=clients.disconnect,
    )
    workers.open()
    try:
        yield workers
    finally:
        await workers.aclose()


class Gate:
    """A job that stays in its worker until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, client: Client) -> str:
        self.entered.set()
        assert self.let_go.wait(timeout=30)
        client.use()
        return "done"

    def stay(self, client: Client) -> None:
        self(client)

    async def wait_entered(self) -> None:
        await until(self.entered.is_set)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.001)
