"""Loads in flight: one for each key at a time, whoever asks, and nobody owns it.

A load runs in a detached task, so a caller that is cancelled leaves it to the others that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tieredkv.results import GetStatus, merge_reads

if TYPE_CHECKING:
    from tieredkv.errors import TieredKVError
    from tieredkv.pool.arena import Arena, Entry

__all__ = ["InFlight", "Load"]


class Load:
    """The search for one value in the L2 tiers.

    Attributes:
        name: Wire name.
        size: Payload bytes that the caller knows it to have, or None.
        current: False once its key was put or deleted: then it must not enter any tier, and later
            calls do not join it.
        status: What the tiers said so far, all together.
        tier: The tier that answered with HIT, else the one that `error` is about.
        error: The cause that goes with `status`.
        entry: With HIT, the value.
        joined: Callers that wait.
        urgent: Whether one of them needs it now.
    """

    __slots__ = (
        "_done",
        "_settled",
        "current",
        "entry",
        "error",
        "joined",
        "name",
        "size",
        "status",
        "tier",
        "urgent",
    )

    def __init__(self, name: str, size: int | None) -> None:
        self.name: str = name
        self.size: int | None = size
        self.current: bool = True
        self.status: GetStatus = GetStatus.MISS
        self.tier: str | None = None
        self.error: TieredKVError | None = None
        self.entry: Entry | None = None
        self._settled = False
        self._done: anyio.Event | None = None
        self.joined: int = 0
        self.urgent: bool = True

    def note(self, tier: str, status: GetStatus, error: TieredKVError | None) -> None:
        """Take one tier's answer; the most telling one of all stays."""
        merged = merge_reads((self.status, status))
        says_more = self.error is None and error is not None
        if merged is not self.status or (merged is status and says_more):
            self.status, self.tier, self.error = merged, tier, error

    async def wait(self) -> None:
        """Wait until the load has settled; whoever joined it must do so, or `leave`.

        The loads of a batch settle together: there is an event only for the one that is waited for.
        """
        if self._settled:
            return
        if self._done is None:
            self._done = anyio.Event()
        await self._done.wait()

    def settle(self, arena: Arena) -> None:
        """Wake those who joined. Each becomes a user of the entry, the load ceases to be one."""
        if self._settled:
            return
        if self.entry is not None:
            self.entry.users += self.joined
            arena.drop(self.entry)
        self._settled = True
        if self._done is not None:
            self._done.set()

    def leave(self, arena: Arena) -> None:
        """Give up what joining brings, or will bring."""
        if not self._settled:
            self.joined -= 1
        elif self.entry is not None:
            arena.drop(self.entry)


class InFlight:
    """The loads that run, by wire name, and the keys that are changing."""

    def __init__(self) -> None:
        self._loads: dict[str, Load] = {}
        self._changing: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._loads)

    def join(self, name: str, size: int | None, *, urgent: bool = True) -> tuple[Load, bool]:
        """Join the load of a name, and say whether it is new and must be started.

        One that looks for another size than the caller is not joined but replaced.
        """
        load = self._loads.get(name)
        if load is not None and load.size not in (None, size):
            load.current = False  # nobody could tell it of a change any more
            load = None
        is_new = load is None
        if load is None:
            load = self._loads[name] = Load(name, size)
            load.current = name not in self._changing
            load.urgent = urgent
        load.urgent = load.urgent or urgent
        load.joined += 1
        return load, is_new

    def end(self, load: Load) -> None:
        """Forget a load that has settled."""
        if self._loads.get(load.name) is load:
            del self._loads[load.name]

    def outdate(self, name: str) -> None:
        """Note that a key was put or deleted: what is on its way then is of no use to others."""
        load = self._loads.pop(name, None)
        if load is not None:
            load.current = False

    @contextmanager
    def changing(self, names: Collection[str]) -> Iterator[None]:
        """Keep loads of these keys out of L1 that begin before the change or during it."""
        for name in names:
            self._changing[name] = self._changing.get(name, 0) + 1
            self.outdate(name)
        try:
            yield
        finally:
            for name in names:
                self.outdate(name)
                self._changing[name] -= 1
                if not self._changing[name]:
                    del self._changing[name]
