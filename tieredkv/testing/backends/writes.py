"""Writes: what is stored afterwards, whatever went wrong on the way."""

from __future__ import annotations

import threading

import anyio
from anyio.lowlevel import checkpoint

from tieredkv.backends.base import Backend, WriteRequest
from tieredkv.config import MiB
from tieredkv.errors import TieredKVError
from tieredkv.results import GetStatus, PutStatus, WriteOutcome
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import (
    DEFECTS,
    PATIENCE_S,
    Landing,
    Raising,
    Source,
)
from tieredkv.testing.content import content, gist

__all__ = ["WriteConformance"]

_STORED = WriteOutcome(PutStatus.STORED)
_SUPERSEDED = WriteOutcome(PutStatus.SKIPPED, "superseded")


class WriteConformance(KitFixtures):
    """`Backend.write_many`."""

    async def test_a_write_stores_exactly_the_sealed_bytes(self, backend: Backend) -> None:
        for size in self.sizes:
            value = content("write", size)
            assert await _write(backend, Source(f"write-{size}", value)) == [_STORED]
            assert gist(self.raw_get(f"write-{size}")) == gist(value)

    async def test_a_write_replaces_the_value_and_its_size(self, backend: Backend) -> None:
        for size in (5000, 70_000, 1, 0, 3000):
            value = content("replaced", size)
            await self.write(backend, ("replaced", value))
            assert gist(self.raw_get("replaced")) == gist(value)
            (stat,) = await backend.stat_many(["replaced"])
            assert (stat.status, stat.stored_bytes) == (GetStatus.HIT, size)
            landing = Landing("replaced", size)
            (read,) = await backend.read_many([landing.request()])
            assert (read.status, landing.value) == (GetStatus.HIT, value)

    async def test_the_last_of_one_name_in_a_batch_wins(self, backend: Backend) -> None:
        values = [content(number, 1000 + number) for number in range(5)]
        names = ["a", "b", "a", "c", "a"]
        outcomes = await _write(backend, *map(Source, names, values))
        assert outcomes == [_SUPERSEDED, _STORED, _SUPERSEDED, _STORED, _STORED]
        wanted = [values[4], values[1], values[3]]
        assert [gist(self.raw_get(name)) for name in "abc"] == list(map(gist, wanted))

    async def test_a_value_is_sealed_in_a_worker(self, backend: Backend) -> None:
        sources = [Source(f"sealed-{size}", content("sealed", size)) for size in self.sizes]
        await _write(backend, *sources)
        for source in sources:
            assert source.threads
            assert threading.get_ident() not in source.threads

    async def test_a_seal_that_raises_harms_only_its_own_name(self, backend: Backend) -> None:
        names = [f"neighbour-{number}" for number in range(5)]
        for defect in DEFECTS:
            values = [content((defect, name), 600) for name in names]
            before = self.raw_get(names[2])
            sources = list(map(Source, names, values))
            sources[2] = Source(names[2], values[2], on_seal=Raising(defect("raised")))
            outcomes = await _write(backend, *sources)
            failed = outcomes.pop(2)
            assert failed.status in (PutStatus.FAILED, PutStatus.UNKNOWN)
            assert isinstance(failed.error, TieredKVError)
            assert gist(self.raw_get(names[2])) == gist(before), (
                "the failed write has changed something"
            )
            assert outcomes == [_STORED] * 4
            del values[2]
            others = [name for name in names if name != names[2]]
            assert [gist(self.raw_get(name)) for name in others] == list(map(gist, values))
            await self.write(backend, (names[2], content(("old", defect), 700)))

    async def test_nothing_of_a_written_value_is_kept(self, backend: Backend) -> None:
        good = Source("kept", content("kept", 5000))
        bad = Source("bad", content("bad", 5000), on_seal=Raising(OSError("raised")))
        outcomes = await _write(backend, good, bad)
        await good.returned()
        await bad.returned()
        assert len(outcomes) == 2
        assert gist(good.value) == gist(content("kept", 5000)), "the writer's memory was written to"
        good.refill(bytes(5000))
        assert gist(self.raw_get("kept")) == gist(content("kept", 5000))

    async def test_a_value_with_gaps_is_stored_right_or_not_at_all(self, backend: Backend) -> None:
        value = content("gaps", 500)
        spread = bytearray(1000)
        spread[::2] = value
        gaps = WriteRequest("gaps", 500, memoryview(spread)[::2].toreadonly)
        neighbour = Source("neighbour", value)
        outcomes = await backend.write_many([gaps, neighbour.request()])
        stored = outcomes[0].status is PutStatus.STORED
        assert gist(self.raw_get("gaps")) == gist(value if stored else None)
        assert outcomes[1] == _STORED

    async def test_a_value_over_the_limit_is_refused_unsent(self, backend: Backend) -> None:
        limit = backend.capabilities.max_value_bytes
        if limit is None:
            return
        sealed: list[str] = []

        def seal() -> memoryview:
            sealed.append("huge")
            return memoryview(b"")

        source = Source("neighbour", content("neighbour", 10))
        outcomes = await backend.write_many(
            [WriteRequest("huge", limit + 1, seal), source.request()]
        )
        assert outcomes == [WriteOutcome(PutStatus.REJECTED, "too_large"), _STORED]
        assert not sealed
        assert self.raw_get("huge") is None
        if limit <= 64 * MiB:
            await self.write(backend, ("largest", content("largest", limit)))

    async def test_a_value_lives_for_its_ttl_or_for_good(self, backend: Backend) -> None:
        native = backend.capabilities.native_ttl
        value = content("ttl", 300)
        ttls = {"replaced": 1.0, "long": 3600.0, "none": None}
        await _write(backend, *(Source(name, value, ttl_s=ttl) for name, ttl in ttls.items()))
        await self.write(backend, ("replaced", value))  # for good now
        await _write(backend, Source("short", value, ttl_s=1.0))
        if native:
            with anyio.fail_after(PATIENCE_S):
                while (await backend.stat_many(["short"]))[0].status is GetStatus.HIT:
                    await checkpoint()
        landings = [Landing(name, 300) for name in (*ttls, "short")]
        outcomes = await backend.read_many([landing.request() for landing in landings])
        last = GetStatus.MISS if native else GetStatus.HIT
        assert [outcome.status for outcome in outcomes] == [GetStatus.HIT] * 3 + [last]

    async def test_a_reader_sees_the_old_value_or_the_new_one(self, backend: Backend) -> None:
        size = max(self.sizes)
        values = [content("old", size), content("new", size)]
        await self.write(backend, ("contended", values[0]))
        writing = True
        parts: list[str] = []

        async def read() -> None:
            while writing:
                landing = Landing("contended", size)
                (outcome,) = await backend.read_many([landing.request()])
                if outcome.status is not GetStatus.HIT or landing.value not in values:
                    parts.append(str(outcome))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)
            for number in range(20):
                await self.write(backend, ("contended", values[number % 2]))
            writing = False
        assert not parts


async def _write(backend: Backend, *sources: Source) -> list[WriteOutcome]:
    return await backend.write_many([source.request() for source in sources])
