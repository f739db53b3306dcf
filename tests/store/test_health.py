"""A tier that does not answer is not waited for, and used again when it answers."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.store.inside import inside
from tieredkv import DeleteStatus, GetStatus, PutStatus, TieredStore
from tieredkv.backends import BackendStatus, DiskBackend, ValkeyBackend
from tieredkv.config import MiB
from tieredkv.errors import TieredKVError, TierError, TierFullError, TierUnavailableError
from tieredkv.results import StatOutcome
from tieredkv.tasks import Detached
from tieredkv.testing.faults import Fault, FaultyBackend
from tieredkv.testing.memory import MemoryBackend
from tieredkv.tiers.health import Health

pytestmark = pytest.mark.anyio

DOWN = TierUnavailableError("m", "read", "down")
FULL = TierFullError("m", "write", "full")


@pytest.fixture
def tier() -> FaultyBackend:
    return FaultyBackend(MemoryBackend())


async def _no_answer() -> TieredKVError | None:
    return DOWN


def health_of(answer: Callable[[], Awaitable[TieredKVError | None]] | None = None) -> Health:
    return Health("m", answer or _no_answer, Detached(), first_probe_s=0.001)  # type: ignore[arg-type]


async def fail(store: TieredStore, tier: FaultyBackend, times: int = 3) -> None:
    tier.inject(Fault("read", "raise", times=None), Fault("stat", "raise", times=None))
    for _ in range(times):
        assert await store.get("nothing") is None


class TestBreaker:
    async def test_three_calls_in_a_row_without_an_answer_open_it(self) -> None:
        health = health_of()
        health.failed(DOWN, answered=False)
        health.failed(DOWN, answered=False)
        assert not health.is_open
        health.failed(DOWN, answered=False)
        assert health.is_open
        await health.aclose()

    @pytest.mark.parametrize("answered", [True, False])
    async def test_an_answer_between_them_keeps_it_closed(self, *, answered: bool) -> None:
        health = health_of()
        for _ in range(5):
            health.failed(DOWN, answered=False)
            health.failed(DOWN, answered=False)
            if answered:
                health.succeeded("read")
            else:
                health.failed(FULL, answered=True)
        assert not health.is_open

    async def test_one_that_opens_again_is_probed_once_at_a_time(self) -> None:
        detached = Detached()
        health = Health("m", _no_answer, detached, first_probe_s=60)
        for _ in range(3):
            health.open(DOWN)
            health.succeeded("read")
        health.open(DOWN)
        assert (health.times_opened, detached.pending) == (4, 1)
        await health.aclose()
        await anyio.wait_all_tasks_blocked()
        assert (health.probes, detached.pending) == (0, 0)

    async def test_closing_ends_a_probe_that_is_under_way(self) -> None:
        detached = Detached()
        asked = anyio.Event()

        async def never() -> TieredKVError | None:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError

        health = Health("m", never, detached, first_probe_s=0.001)
        health.open(DOWN)
        with anyio.fail_after(30):
            await asked.wait()
            await health.aclose()
        await anyio.wait_all_tasks_blocked()
        assert detached.pending == 0

    async def test_it_closes_when_a_probe_is_answered(self) -> None:
        answers = [DOWN, DOWN, None]
        health = health_of(lambda: _next(answers))
        health.open(DOWN)
        with anyio.fail_after(30):
            while health.is_open:
                await anyio.sleep(0.001)
        assert (health.failure, health.probes, health.times_opened) == (None, 3, 1)
        await health.aclose()

    async def test_a_call_that_was_under_way_closes_it_too(self) -> None:
        health = health_of()
        health.open(DOWN)
        health.succeeded("read")
        assert not health.is_open
        await health.aclose()

    async def test_closing_ends_a_probe_that_hangs(self) -> None:
        asked = anyio.Event()

        async def hang() -> None:
            asked.set()
            await anyio.sleep_forever()

        health = health_of(hang)
        health.open(DOWN)
        with anyio.fail_after(30):
            await asked.wait()
            await health.aclose()

    async def test_once_closed_it_sends_none_whatever_fails(self) -> None:
        detached = Detached()
        health = Health("m", lambda: _next([None]), detached, first_probe_s=0.001)
        await health.aclose()
        for _ in range(3):
            health.failed(DOWN, answered=False)
        assert (detached.pending, health.is_open) == (0, False)

    async def test_probes_come_ever_more_seldom(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses_s: list[float] = []

        async def sleep(delay_s: float) -> None:
            pauses_s.append(delay_s)
            await checkpoint()

        monkeypatch.setattr("tieredkv.tiers.health.anyio.sleep", sleep)
        monkeypatch.setattr("tieredkv.tiers.health.random.uniform", lambda low, high: high)
        answers = [DOWN] * 7 + [None]
        health = Health("m", lambda: _next(answers), Detached())
        health.open(DOWN)
        while health.is_open:
            await checkpoint()
        assert pauses_s == [1.25 * seconds for seconds in (1, 2, 4, 8, 16, 30, 30, 30)]

    async def test_after_an_answer_none_is_sent_any_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def sleep(delay_s: float) -> None:
            health.succeeded("read")

        monkeypatch.setattr("tieredkv.tiers.health.anyio.sleep", sleep)
        health = health_of()
        health.open(DOWN)
        while health.is_open:
            await checkpoint()
        await health.aclose()
        assert health.probes == 0

    async def test_each_change_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="tieredkv")
        health = health_of()
        for _ in range(5):
            health.failed(DOWN, answered=False)
        health.succeeded("read")
        health.succeeded("read")
        said = [record.message.split(":")[0] for record in caplog.records]
        assert said == [
            "tier m is failing",
            "tier m is not asked until it answers a probe",
            "tier m answers again",
        ]
        await health.aclose()


async def _next(answers: list[TierUnavailableError | None]) -> TierUnavailableError | None:
    return answers.pop(0)


class TestStore:
    async def test_a_tier_that_does_not_answer_is_not_asked(self, tier: FaultyBackend) -> None:
        async with TieredStore(4 * MiB, [tier]) as store:
            await store.put("a", b"value")
            await store.clear()
            await fail(store, tier)
            tier.calm()  # it would answer now
            (result,) = await store.get_many(["a"])
            assert result.status is GetStatus.UNKNOWN
            assert "not asked" in str(result.error)
            put = await store.put("b", b"value")
            assert str(put.tiers[tier.name]).startswith("skipped (unavailable")
            assert put.tiers[tier.name].status is PutStatus.SKIPPED
            deleted = await store.delete("a")
            assert deleted.tiers[tier.name].status is DeleteStatus.FAILED
            status = (await store.status())["tiers"][tier.name]
            assert (status["is_healthy"], status["is_asked"]) == (False, False)

    async def test_what_was_put_and_deleted_meanwhile_is_not_contradicted_later(
        self, tier: FaultyBackend
    ) -> None:
        async with TieredStore(4 * MiB, [tier]) as store:
            await store.put("a", b"old")
            await store.put("b", b"old")
            await fail(store, tier)
            await store.put("a", b"new")
            await store.delete("b")
            tier.calm()
            inside(store).tiers[0].health.succeeded("probe")
            await store.clear()
            assert [await store.get_bytes(key) for key in "ab"] == [None, None]

    async def test_the_tiers_behind_it_go_on(self, tier: FaultyBackend, tmp_path: Path) -> None:
        async with TieredStore(4 * MiB, [tier, DiskBackend(tmp_path)]) as store:
            await store.put("a", b"value")
            await fail(store, tier)
            await store.clear()
            assert await store.get_bytes("a") == b"value"
            assert (await store.put("b", b"value")).ok

    async def test_it_is_used_again_when_it_answers_a_probe(self, tier: FaultyBackend) -> None:
        async with TieredStore(4 * MiB, [tier]) as store:
            await fail(store, tier)
            tier.calm()
            with anyio.fail_after(30):
                while not (await store.put("a", b"value")).ok:
                    await anyio.sleep(0.05)

    async def test_a_tier_that_is_full_is_asked_on(self, tier: FaultyBackend) -> None:
        async with TieredStore(4 * MiB, [tier]) as store:
            await store.put("a", b"value")
            tier.inject(Fault("write", "raise", times=None, error=TierFullError))
            for _ in range(5):
                await store.put("b", b"value")
            await store.clear()
            assert await store.get_bytes("a") == b"value"

    async def test_a_hung_tier_is_waited_for_until_its_breaker_opens(
        self, tier: FaultyBackend
    ) -> None:
        tier.deadline_s = 0.01
        async with TieredStore(4 * MiB, [tier]) as store:
            tier.inject(Fault("stat", "hang", times=None))
            for _ in range(10):
                assert await store.get("a") is None
            outcomes = store.stats().tiers[tier.name].outcomes
            assert (outcomes["stat", "unknown"], outcomes["stat", "not_asked"]) == (3, 7)

    async def test_one_that_fails_for_some_names_only_is_asked_on(
        self, tier: FaultyBackend
    ) -> None:
        async with TieredStore(4 * MiB, [tier]) as store:
            tier.inject(Fault("stat", "raise", "a", times=None))
            for _ in range(5):
                with await store.get_many(["a", "b"]) as results:
                    assert [result.status for result in results] == [
                        GetStatus.UNKNOWN,
                        GetStatus.MISS,
                    ]
            assert store.stats().tiers[tier.name].is_asked

    async def test_one_that_raises_or_leaves_outcomes_out_is_not_asked_any_more(
        self, anyio_backend: object
    ) -> None:
        class Defective(MemoryBackend):
            async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
                if names == ["raise"]:
                    raise LookupError("lost")
                if names == ["none"]:
                    return None  # type: ignore[return-value]
                return (await super().stat_many(names))[1:]

        async with TieredStore(4 * MiB, [Defective()]) as store:
            for key in ("raise", "a", "none"):
                (result,) = await store.get_many([key])
                assert result.status is GetStatus.UNKNOWN
                words = "LookupError: lost" if key == "raise" else "an outcome is missing"
                assert words in str(result.error)
            assert not store.stats().tiers["memory"].is_asked

    @pytest.mark.parametrize(
        ("says", "reason"),
        [
            ("well", ""),
            ("ill", "out of sorts"),
            ("raises", "status: LookupError: lost"),
            ("hangs", "status: no answer within 0.01 s"),
        ],
    )
    async def test_status_tells_what_a_tier_says_of_itself(
        self, says: str, reason: str, anyio_backend: object
    ) -> None:
        class Talking(MemoryBackend):
            deadline_s = 0.01

            async def status(self) -> BackendStatus:
                if says == "raises":
                    raise LookupError("lost")
                if says == "hangs":
                    await anyio.sleep_forever()
                return BackendStatus(is_healthy=says == "well", reason=reason, details={"n": 1})

        async with TieredStore(4 * MiB, [Talking()]) as store:
            status = (await store.status())["tiers"]["memory"]
            assert (status["is_healthy"], status["reason"]) == (not reason, reason)
            assert status["details"] == ({"n": 1} if says in ("well", "ill") else {})


class TestOpening:
    async def test_a_tier_that_is_unreachable_is_used_when_it_can_be(
        self, tier: FaultyBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        tier.inject(Fault("open", "raise"))
        async with TieredStore(4 * MiB, [tier]) as store:
            assert "is not asked until it answers a probe" in caplog.text
            (result,) = await store.get_many(["a"])
            assert result.status is GetStatus.UNKNOWN
            with pytest.raises(TierUnavailableError, match="not asked"):
                _ = [key async for key in store.keys(tier.name)]
            with anyio.fail_after(30):
                while not (await store.put("a", b"value")).ok:
                    await anyio.sleep(0.05)
            assert (await store.status())["is_healthy"]

    async def test_a_real_server_that_is_not_there_yet(self) -> None:
        async with TieredStore(4 * MiB, [ValkeyBackend("valkey://127.0.0.1:1")]) as store:
            assert not (await store.put("a", b"value")).ok
            assert await store.get_bytes("a") == b"value"
            assert "refused" in (await store.status())["tiers"]["valkey"]["reason"]

    async def test_who_wants_to_know_is_told_until_it_can_be_reached(
        self, tier: FaultyBackend
    ) -> None:
        tier.inject(Fault("open", "raise"))
        async with TieredStore(4 * MiB, [tier], fail_open=False) as store:
            for call in (store.get, store.get_bytes, store.exists, store.stat):
                with pytest.raises(TierUnavailableError, match="not asked"):
                    await call("a")
            assert not (await store.put("b", b"value")).ok
            assert await store.get_bytes("b") == b"value"  # L1 goes on
            with anyio.fail_after(30):
                while inside(store).tiers[0].health.is_open:
                    await anyio.sleep(0.05)
            assert await store.get_bytes("a") is None

    async def test_a_cause_that_waiting_does_not_heal_is_raised(self, tier: FaultyBackend) -> None:
        tier.inject(Fault("open", "raise", error=TierError))
        with pytest.raises(TierError, match="injected"):
            async with TieredStore(4 * MiB, [tier]):
                pass

    async def test_closing_does_not_wait_for_a_tier_that_never_came(
        self, tier: FaultyBackend
    ) -> None:
        tier.inject(Fault("open", "raise", times=None))
        async with TieredStore(4 * MiB, [tier]) as store:
            await store.get("a")

    async def test_a_directory_that_vanishes_and_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "disk"
        async with TieredStore(4 * MiB, [DiskBackend(path)]) as store:
            await store.put("a", b"value")
            shutil.rmtree(path)
            await store.clear()
            assert await store.get_bytes("a") is None
            assert (await store.put("b", b"value")).tiers["l1"].status is PutStatus.STORED
