"""Two threads that end one lease at the same time: one does, the other is told."""

from __future__ import annotations

import threading

from tieredkv.config import L1Config
from tieredkv.errors import LeaseReleasedError
from tieredkv.observe import Listeners
from tieredkv.pool.lease import MemoryObject
from tieredkv.tiers.memory import MemoryTier


class Slowed(MemoryObject):
    """A lease whose page is looked up slowly, so that another thread gets in between."""

    __slots__ = ("barrier",)

    barrier: threading.Barrier

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name == "_page":
            barrier = super().__getattribute__("barrier")
            if threading.current_thread() is not threading.main_thread():
                barrier.wait(timeout=30)
        return found


def test_only_one_of_two_threads_takes_the_user_away() -> None:
    tier = MemoryTier(L1Config(capacity="1MiB"), Listeners(), room_bytes=0)
    entry = tier.reserve("key", 100)
    assert entry is not None
    entry.users += 1
    lease = Slowed(entry, tier.arena, tier.leases, "key", "l1")
    lease.barrier = threading.Barrier(2)
    refused: list[LeaseReleasedError] = []

    def release() -> None:
        try:
            lease.release()
        except LeaseReleasedError as error:
            refused.append(error)

    threads = [threading.Thread(target=release) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tier.arena.drain()
    assert entry.users == 1
    assert len(refused) == 1
