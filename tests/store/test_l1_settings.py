"""What L1's configuration changes."""

from __future__ import annotations

import array
import gc
import logging
import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

import tieredkv.tiers.memory as memory_module
from tests.store.inside import inside
from tests.store.stoppable import StoppableDisk
from tieredkv import L1Config, TieredStore
from tieredkv.config import KiB, MiB, PolicyName
from tieredkv.errors import ConfigError
from tieredkv.frames import now_ms
from tieredkv.pool import limits
from tieredkv.pool.limits import memory_limits

pytestmark = pytest.mark.anyio


class TestBuffer:
    @pytest.mark.parametrize(
        "buffer",
        [bytearray(MiB), np.zeros(MiB // 4, np.float32), array.array("d", bytes(MiB))],
        ids=["bytearray", "numpy", "array"],
    )
    async def test_values_lie_in_the_callers_memory(self, buffer: object) -> None:
        memory = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        async with TieredStore(L1Config(capacity=MiB, buffer=buffer, overflow=0)) as store:
            for number in range(300):
                assert (await store.put(f"{number}", bytes([number % 251]) * 5000)).ok
            held = [str(key) async for key in store.keys("l1")]
            assert len(held) > 50
            for key in held:
                assert await store.get_bytes(key) == bytes([int(key) % 251]) * 5000
            assert bytes(memory).find(bytes([int(held[0]) % 251]) * 5000) >= 0

    async def test_blocks_are_aligned_whatever_the_buffers_address(self) -> None:
        memory = memoryview(bytearray(MiB))[3:]
        config = L1Config(capacity=MiB - 3, buffer=memory, alignment_bytes=64 * KiB, overflow=0)
        async with TieredStore(config) as store:
            await store.put("key", b"value")
            lease = await store.get("key")
            assert lease is not None
            with lease:
                assert lease.address % (64 * KiB) == 0
            assert store.stats().l1.capacity_bytes == 15 * 64 * KiB

    async def test_it_is_free_again_after_the_store_and_the_last_view(self) -> None:
        memory = bytearray(MiB)
        store = TieredStore(L1Config(capacity=MiB, buffer=memory))
        async with store:
            await store.put("key", b"value")
        with pytest.raises(BufferError):
            memory.clear()  # the store holds it
        del store
        gc.collect()
        memory.clear()

    def test_what_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="buffer must be an object with the buffer protocol"):
            L1Config(capacity=MiB, buffer=object())
        with pytest.raises(ConfigError, match="buffer must be writable"):
            L1Config(capacity=MiB, buffer=bytes(MiB))
        with pytest.raises(ConfigError, match="C-contiguous"):
            L1Config(capacity=KiB, alignment_bytes=64, buffer=memoryview(bytearray(MiB))[::2])
        with pytest.raises(ConfigError, match=f"buffer has {MiB} bytes, fewer than capacity="):
            L1Config(capacity=MiB + 1, buffer=bytearray(MiB))

    def test_no_aligned_block_in_it(self) -> None:
        memory = memoryview(mmap.mmap(-1, 8 * KiB))[1:]
        config = L1Config(capacity=4 * KiB, buffer=memory[: 4 * KiB])
        with pytest.raises(ConfigError, match="no aligned block of 4096 bytes"):
            memory_module.MemoryTier(config, SimpleNamespace(), room_bytes=64)  # type: ignore[arg-type]


class TestPrefault:
    @staticmethod
    def resident_bytes() -> int:
        gc.collect()  # the pools of earlier stores
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * mmap.PAGESIZE

    async def test_the_pool_is_resident_when_the_store_opens(self) -> None:
        before = self.resident_bytes()
        async with TieredStore(L1Config(capacity=96 * MiB, prefault=True)) as store:
            assert self.resident_bytes() - before > 90 * MiB
            assert (await store.put("key", b"value")).ok

    async def test_else_only_what_is_used(self) -> None:
        before = self.resident_bytes()
        async with TieredStore(L1Config(capacity=96 * MiB)):
            assert self.resident_bytes() - before < 8 * MiB

    def test_yes_or_no(self) -> None:
        with pytest.raises(ConfigError, match="prefault='yes'"):
            L1Config(capacity=MiB, prefault="yes")  # type: ignore[arg-type]


class TestLimits:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        group = tmp_path / "sys/fs/cgroup/kube/pod"
        group.mkdir(parents=True)
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text("4:memory:/old\n0::/kube/pod\n")
        (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
        (group / "memory.max").write_text("max\n")
        (group.parent / "memory.max").write_text("1000000\n")
        (group.parent.parent / "memory.max").write_text("5000000\n")
        return tmp_path

    def test_the_lowest_of_the_groups_around_counts(self, root: Path) -> None:
        assert memory_limits(root) == {"MemAvailable": 2 * MiB, "memory.max": 1_000_000}

    def test_a_system_without_any(self, tmp_path: Path) -> None:
        assert memory_limits(tmp_path) == {}

    def test_this_system(self) -> None:
        assert memory_limits()["MemAvailable"] > MiB

    async def test_more_is_warned_of_with_numbers(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(limits, "memory_limits", lambda: memory_limits(root))
        with caplog.at_level(logging.WARNING):
            async with TieredStore(L1Config(capacity=MiB, overflow=512 * KiB)):
                pass
        (message,) = caplog.messages
        assert "may use 1572864 bytes" in message
        assert "memory.max is 1000000" in message


class TestMaxAge:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        clock = SimpleNamespace(ms=now_ms())
        monkeypatch.setattr(memory_module, "now_ms", lambda: clock.ms)
        return clock

    async def test_a_promoted_copy_is_loaded_again(
        self, disk: StoppableDisk, now: SimpleNamespace
    ) -> None:
        async with TieredStore(L1Config(capacity=MiB, max_age_s=5), l2=[disk]) as store:
            await store.put("key", b"value")
            inside(store).l1.clear()
            for tier in ("disk", "l1"):
                lease = await store.get("key")
                assert lease is not None
                with lease:
                    assert lease.tier == tier
            now.ms += 5001
            lease = await store.get("key")
            assert lease is not None
            with lease:
                assert lease.tier == "disk"

    async def test_an_own_put_has_no_age(self, disk: StoppableDisk, now: SimpleNamespace) -> None:
        async with TieredStore(L1Config(capacity=MiB, max_age_s=5), l2=[disk]) as store:
            await store.put("key", b"value")
            now.ms += 60_000
            lease = await store.get("key")
            assert lease is not None
            with lease:
                assert lease.tier == "l1"

    async def test_an_earlier_expiry_stands(
        self, disk: StoppableDisk, now: SimpleNamespace
    ) -> None:
        async with TieredStore(L1Config(capacity=MiB, max_age_s=60), l2=[disk]) as store:
            await store.put("key", b"value", ttl_s=30)
            inside(store).l1.clear()
            assert await store.get_bytes("key") == b"value"
            now.ms += 31_000
            assert store.get_nowait("key") is None

    @pytest.mark.parametrize("age", [0, -1, float("nan"), "5", True])
    def test_what_is_refused(self, age: object) -> None:
        with pytest.raises(ConfigError, match="max_age_s"):
            L1Config(capacity=MiB, max_age_s=age)  # type: ignore[arg-type]


class TestAlignment:
    @pytest.mark.parametrize(
        ("capacity", "alignment_bytes", "message"),
        [
            (MiB, 3000, "alignment_bytes=3000 must be a power of two"),
            (MiB, 32, r"alignment_bytes=32 is outside 64\.\."),
            (MiB, 2 * MiB, f"capacity={MiB} is below one block of {2 * MiB} bytes"),
            ("8TiB", 4096, f"capacity={2**43} is more than .* of alignment_bytes=4096: lower"),
        ],
    )
    def test_what_is_refused(self, capacity: int | str, alignment_bytes: int, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            L1Config(capacity=capacity, alignment_bytes=alignment_bytes)


class TestPolicies:
    @pytest.mark.parametrize("policy", [name for name in get_args(PolicyName) if name != "noop"])
    async def test_each_runs_a_full_store(self, policy: PolicyName) -> None:
        config = L1Config(capacity=64 * KiB, overflow=0, eviction_policy=policy)
        async with TieredStore(config) as store:
            for number in range(200):
                assert (await store.put(f"{number}", bytes(3000))).ok
                await store.get_bytes(f"{number % 7}")
            stats = store.stats().l1
            assert stats.objects <= 16
            assert stats.objects + stats.evicted == 200

    async def test_nobody_leaves_under_noop(self) -> None:
        config = L1Config(capacity=8 * KiB, overflow=0, eviction_policy="noop")
        async with TieredStore(config) as store:
            results = [await store.put(f"{number}", b"value") for number in range(3)]
            assert [result.ok for result in results] == [True, True, False]
            assert str(results[2].tiers["l1"]) == "rejected (no_memory)"

    def test_a_misspelt_one_names_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"eviction_policy='aarc'.*did you mean 'arc'"):
            L1Config(capacity=MiB, eviction_policy="aarc")  # type: ignore[arg-type]


async def test_hits_alone_settle_releases_and_tell_of_long_leases(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with TieredStore(L1Config(capacity=MiB, lease_warn_s=1e-9)) as store:
        await store.put("key", b"value")
        forgotten = await store.get("key")
        assert forgotten is not None
        arena = inside(store).l1.arena
        with caplog.at_level(logging.WARNING):
            for _ in range(2000):
                lease = await store.get("key")
                assert lease is not None
                lease.release()
                assert len(arena.dropped) <= 300
        assert ["key" in message for message in caplog.messages] == [True]
        forgotten.release()


async def test_hits_into_the_callers_memory_settle_releases_too() -> None:
    async with TieredStore(MiB) as store:
        await store.put("key", b"value")
        arena, out = inside(store).l1.arena, bytearray(5)
        for _ in range(2000):
            assert await store.get_into("key", out) == 5
            assert len(arena.dropped) <= 300
