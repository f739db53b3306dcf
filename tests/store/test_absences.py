"""A tier that was asked in vain a moment ago is not asked again."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from tieredkv import TieredStore, WriteThrough
from tieredkv.config import MiB
from tieredkv.errors import ConfigError
from tieredkv.results import StatOutcome
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers.absences import Absences


@pytest.fixture
def tier() -> FaultyBackend:
    return FaultyBackend(MemoryBackend())


def asked(store: TieredStore) -> int:
    return store.stats().tiers["memory"].outcomes.get(("stat", "miss"), 0)


def test_an_absence_ends_with_its_time_or_with_a_write() -> None:
    now = [100.0]
    absences = Absences(10, clock=lambda: now[0])
    absences.add("a")
    now[0] += 1
    absences.add("b")
    absences.discard("b")
    assert ("a" in absences, "b" in absences) == (True, False)
    now[0] += 9
    assert "a" not in absences
    assert len(absences) == 0


@pytest.mark.anyio
class TestStore:
    async def test_it_is_asked_once(self, tier: FaultyBackend) -> None:
        async with TieredStore(MiB, [tier], negative_ttl_s=600) as store:
            for _ in range(3):
                assert await store.get("a") is None
                assert await store.exists_many(["a", "b"]) == [False, False]
            assert asked(store) == 2
            assert store.stats().tiers["memory"].outcomes["stat", "known_absent"] == 7

    async def test_it_is_not_called_about_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        backend = MemoryBackend()
        stat_many, calls = backend.stat_many, []

        async def noted(names: Sequence[str]) -> list[StatOutcome]:
            calls.append(names)
            return await stat_many(names)

        monkeypatch.setattr(backend, "stat_many", noted)
        async with TieredStore(MiB, [backend], negative_ttl_s=600) as store:
            for _ in range(3):
                assert not await store.exists("a")
            assert calls == [["a"]]
            assert store.stats().tiers["memory"].outcomes["stat", "known_absent"] == 2

    async def test_by_default_it_is_asked_each_time(self, tier: FaultyBackend) -> None:
        async with TieredStore(MiB, [tier]) as store:
            for _ in range(3):
                assert await store.get("a") is None
            assert asked(store) == 3

    async def test_a_put_is_seen_at_once(self, tier: FaultyBackend) -> None:
        async with TieredStore(MiB, [tier], negative_ttl_s=600) as store:
            assert await store.get("a") is None
            await store.put("a", b"value")
            await store.clear()
            assert await store.get_bytes("a") == b"value"

    async def test_an_answer_that_a_put_has_overtaken_is_not_remembered(
        self, tier: FaultyBackend
    ) -> None:
        async with TieredStore(MiB, [tier], negative_ttl_s=600) as store:
            tier.inject(Fault("stat", "late"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.exists, "a")
                await tier.until_held()
                await store.put("b", b"value")
                await tier.land()
            assert not await store.exists("a")
            assert asked(store) == 2

    async def test_an_answer_that_comes_during_a_write_is_not_remembered_after_it(
        self, tier: FaultyBackend
    ) -> None:
        above = FaultyBackend(MemoryBackend(name="above", write_on="never"))
        policy = WriteThrough(require="none")
        async with TieredStore(
            MiB, [above, tier], write_policy=policy, negative_ttl_s=600
        ) as store:
            above.inject(Fault("stat", "late"))
            tier.inject(Fault("write", "late"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.exists, "a")
                await above.until_held()
                await store.put("a", b"value")
                await tier.until_held()
                await above.land()
            assert asked(store) == 1
            await tier.land()
            await store.flush()
            await store.clear()
            assert await store.get_bytes("a") == b"value"

    async def test_a_tier_that_did_not_answer_is_asked_again(self, tier: FaultyBackend) -> None:
        async with TieredStore(MiB, [tier], negative_ttl_s=600) as store:
            tier.inject(Fault("stat", "raise"))
            assert await store.get("a") is None
            assert await store.get("a") is None
            assert asked(store) == 1

    def test_it_must_be_a_time(self) -> None:
        with pytest.raises(ConfigError, match="negative_ttl_s=-1"):
            TieredStore(MiB, negative_ttl_s=-1)
