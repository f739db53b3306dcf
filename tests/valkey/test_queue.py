"""Who waits for whom when workers are few."""

from __future__ import annotations

import anyio
import pytest

from tieredkv.backends import ValkeyBackend
from tieredkv.results import GetStatus
from tieredkv.testing.backends.requests import Gate, Landing, Source
from tieredkv.testing.valkey import ValkeyServer

pytestmark = [pytest.mark.anyio, pytest.mark.network]

LARGE = bytes(300_000)


async def test_a_read_goes_before_the_rest_of_a_large_write(server: ValkeyServer) -> None:
    server.command("SET", "read", b"value")
    backend = ValkeyBackend(server.url, num_workers=1)
    await backend.open()
    gate = Gate()
    order: list[str] = []

    def seal(name: str) -> None:
        order.append(name)
        if name == "first":
            gate.hold()

    def answer(_: bytes) -> GetStatus:
        order.append("read")
        return GetStatus.HIT

    async with anyio.create_task_group() as tasks:
        sources = [
            Source(name, LARGE, on_seal=lambda name=name: seal(name))  # type: ignore[misc]
            for name in ("first", "second", "third")
        ]
        tasks.start_soon(backend.write_many, [source.request() for source in sources])
        await gate.arrival()
        tasks.start_soon(backend.read_many, [Landing("read", 5, answer=answer).request()])
        await anyio.wait_all_tasks_blocked()
        gate.open()
    await backend.aclose()
    assert order == ["first", "read", "second", "third"]


async def test_a_write_comes_to_its_end_beside_endless_reads(server: ValkeyServer) -> None:
    server.command("SET", "read", b"value")
    backend = ValkeyBackend(server.url, num_workers=1)
    await backend.open()
    written: list[object] = []

    async def read() -> None:
        while not written:
            await backend.read_many([Landing("read", 5).request()])

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(read)
        requests = [Source(f"n{number}", LARGE).request() for number in range(5)]
        with anyio.fail_after(20):
            written += await backend.write_many(requests)
    await backend.aclose()
    assert len(written) == 5


async def test_1500_readers_at_a_time_are_all_answered(server: ValkeyServer) -> None:
    server.command("SET", "read", b"value")
    backend = ValkeyBackend(server.url, num_workers=2)
    await backend.open()
    outcomes: list[GetStatus] = []

    async def read() -> None:
        (outcome,) = await backend.read_many([Landing("read", 5).request()])
        outcomes.append(outcome.status)

    async with anyio.create_task_group() as tasks:
        for _ in range(1500):
            tasks.start_soon(read)
    clients = backend._workers.num_clients
    await backend.aclose()
    assert outcomes == [GetStatus.HIT] * 1500
    assert clients <= 2
