"""Reads into place: what may be touched, and what an outcome says."""

from __future__ import annotations

import threading

from tieredkv.backends.base import Backend, ReadRequest
from tieredkv.errors import SizeMismatchError, TieredKVError
from tieredkv.results import GetStatus, ReadOutcome
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import DEFECTS, Landing, Raising
from tieredkv.testing.content import content, gist

__all__ = ["ReadConformance"]


class ReadConformance(KitFixtures):
    """`Backend.read_many`."""

    async def test_a_read_lands_exactly_the_stored_bytes(self, backend: Backend) -> None:
        for size in self.sizes:
            value = content("exact", size)
            self.raw_put(f"exact-{size}", value)
            for _ in range(2):
                landing = Landing(f"exact-{size}", size)
                assert await _read(backend, landing) == [ReadOutcome(GetStatus.HIT)]
                assert gist(landing.value) == gist(value)
                assert landing.guards_hold
            assert gist(self.raw_get(f"exact-{size}")) == gist(value)

    async def test_another_size_than_asked_for_is_a_mismatch(self, backend: Backend) -> None:
        for stored in self.sizes:
            self.raw_put(f"other-{stored}", content("other", stored))
            for wanted in {0, stored // 2, stored - 1, stored + 1, 2 * stored + 100} - {stored, -1}:
                landing = Landing(f"other-{stored}", wanted)
                (outcome,) = await _read(backend, landing)
                assert outcome.status is GetStatus.REJECTED, (stored, wanted)
                assert isinstance(outcome.error, SizeMismatchError)
                assert (outcome.error.stored, outcome.error.wanted) == (stored, wanted)
                assert landing.guards_hold
                assert not landing.check.num_results, "there was nothing to check"

    async def test_a_miss_leaves_the_buffers_alone(self, backend: Backend) -> None:
        for size in self.sizes:
            landing = Landing("absent", size, split_at=self._split(backend, size // 2))
            assert await _read(backend, landing) == [ReadOutcome(GetStatus.MISS)]
            assert landing.is_untouched
            assert not landing.check.num_results

    async def test_a_value_that_has_vanished_is_a_miss(self, backend: Backend) -> None:
        await self.write(backend, ("vanished", content("vanished", 5000)))
        self.raw_delete("vanished")
        landing = Landing("vanished", 5000)
        assert await _read(backend, landing) == [ReadOutcome(GetStatus.MISS)]
        assert landing.is_untouched

    async def test_several_buffers_are_filled_in_order(self, backend: Backend) -> None:
        if not backend.capabilities.scatter:
            return
        for size in self.sizes:
            value = content("parts", size)
            self.raw_put(f"parts-{size}", value)
            for first in {0, min(size, 1), size // 3, max(0, size - 64), size}:
                landing = Landing(f"parts-{size}", size, split_at=first)
                assert await _read(backend, landing) == [ReadOutcome(GetStatus.HIT)]
                assert gist(landing.value) == gist(value)
                assert landing.guards_hold

    async def test_what_is_fed_is_the_first_buffer_whole(self, backend: Backend) -> None:
        for size in self.sizes:
            value = content("fed", size)
            self.raw_put(f"fed-{size}", value)
            first = max(0, size - 64)
            landing = Landing(f"fed-{size}", size, split_at=self._split(backend, first))
            await _read(backend, landing)
            if landing.check.fed:
                assert backend.capabilities.scatter, "the first buffer is not the payload"
                assert gist(landing.check.fed) == gist(value[:first])

    async def test_one_name_twice_in_a_batch_fills_both_buffers(self, backend: Backend) -> None:
        value = content("twice", 70_000)
        self.raw_put("twice", value)
        landings = [Landing("twice", 70_000) for _ in range(3)]
        assert await _read(backend, *landings) == [ReadOutcome(GetStatus.HIT)] * 3
        assert [gist(landing.value) for landing in landings] == [gist(value)] * 3

    async def test_every_request_has_its_own_outcome_in_the_order_asked(
        self, backend: Backend
    ) -> None:
        self.raw_put("first", content("first", 3000))
        self.raw_put("last", content("last", 1 << 20))
        wanted = [
            ("last", 1 << 20, GetStatus.HIT),
            ("absent", 100, GetStatus.MISS),
            ("first", 2999, GetStatus.REJECTED),
            ("first", 3000, GetStatus.HIT),
            ("absent", 0, GetStatus.MISS),
            ("last", 7, GetStatus.REJECTED),
        ]
        landings = [Landing(name, size) for name, size, _ in wanted]
        outcomes = await _read(backend, *landings)
        assert [outcome.status for outcome in outcomes] == [status for *_, status in wanted]
        assert gist(landings[0].value) == gist(content("last", 1 << 20))
        assert gist(landings[3].value) == gist(content("first", 3000))

    async def test_the_answer_of_the_check_is_the_outcome(self, backend: Backend) -> None:
        self.raw_put("checked", content("checked", 1000))
        landings = [Landing("checked", 1000, answer=answer) for answer in GetStatus]
        outcomes = await _read(backend, *landings)
        assert [outcome.status for outcome in outcomes] == list(GetStatus)
        assert [landing.check.num_results for landing in landings] == [1] * len(GetStatus)

    async def test_the_check_runs_in_a_worker_when_all_has_landed(self, backend: Backend) -> None:
        for size in self.sizes:
            value = content("landed", size)
            self.raw_put(f"landed-{size}", value)
            landing = Landing(f"landed-{size}", size)
            await _read(backend, landing)
            assert gist(landing.check.seen) == gist(value)
            assert threading.get_ident() not in landing.check.threads

    async def test_a_check_that_raises_harms_only_its_own_name(self, backend: Backend) -> None:
        names = [f"neighbour-{number}" for number in range(5)]
        for name in names:
            self.raw_put(name, content(name, 500))
        for defect in DEFECTS:
            landings = [Landing(name, 500) for name in names]
            landings[2] = Landing(names[2], 500, answer=Raising(defect("raised")))
            outcomes = await _read(backend, *landings)
            statuses = [outcome.status for outcome in outcomes]
            assert statuses.pop(2) is GetStatus.UNKNOWN
            assert isinstance(outcomes[2].error, TieredKVError)
            assert statuses == [GetStatus.HIT] * 4
        assert await _read(backend, Landing(names[2], 500)) == [ReadOutcome(GetStatus.HIT)]

    async def test_an_outcome_keeps_no_memory_alive(self, backend: Backend) -> None:
        self.raw_put("kept", content("kept", 500))
        landings = [
            Landing("kept", 500),
            Landing("kept", 501),
            Landing("absent", 500),
            Landing("kept", 500, answer=Raising(OSError("raised"))),
        ]
        outcomes = await _read(backend, *landings)
        for landing in landings:
            await landing.returned()
        assert len(outcomes) == 4

    async def test_a_read_only_buffer_is_no_hit_and_harms_no_neighbour(
        self, backend: Backend
    ) -> None:
        self.raw_put("stored", content("stored", 500))
        target = bytes(500)
        landing, neighbour = Landing("stored", 500), Landing("stored", 500)
        bad = ReadRequest("stored", (memoryview(target),), landing.check)
        outcomes = await backend.read_many([bad, neighbour.request()])
        assert outcomes[0].status in (GetStatus.UNKNOWN, GetStatus.REJECTED)
        assert outcomes[0].error is not None
        assert target == bytes(500)
        assert outcomes[1].status is GetStatus.HIT

    async def test_a_buffer_with_gaps_is_filled_right_or_refused(self, backend: Backend) -> None:
        value = content("stored", 500)
        self.raw_put("stored", value)
        target = bytearray(1000)
        landing, neighbour = Landing("stored", 500), Landing("stored", 500)
        bad = ReadRequest("stored", (memoryview(target)[::2],), landing.check)
        outcomes = await backend.read_many([bad, neighbour.request()])
        assert target[1::2] == bytes(500)
        assert outcomes[0].status is not GetStatus.MISS
        assert target[::2] == value or outcomes[0].status is not GetStatus.HIT
        assert outcomes[1].status is GetStatus.HIT

    def _split(self, backend: Backend, at: int) -> int | None:
        return at if backend.capabilities.scatter else None


async def _read(backend: Backend, *landings: Landing) -> list[ReadOutcome]:
    return await backend.read_many([landing.request() for landing in landings])
