"""Replaying requests against a store, as an engine would serve them, and what came of it.

For each request: look up how much of the chain's head is known, lease those chunks, compute the
others and put them. Every byte of every lease is compared with what it must be when it arrives, and
again before it ends: by then the puts have evicted other chunks from L1.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from tieredkv.cli.contents import Contents
from tieredkv.config import KiB
from tieredkv.observe import Histogram

if TYPE_CHECKING:
    from tieredkv.cli.workload import Request
    from tieredkv.pool.lease import MemoryObject
    from tieredkv.store import TieredStore

__all__ = ["COMPUTED", "WINDOW_SHARE_OF_L1", "Replay", "Tally", "Traffic"]

ItemT = TypeVar("ItemT")

COMPUTED: Final = "computed"

WINDOW_SHARE_OF_L1: Final = 4
"""That much of L1 is leased at a time, and put at a time."""
_BLOCK_BYTES: Final = 4 * KiB
_MAX_FAULTS: Final = 10


@attrs.define
class Traffic:
    """What one tier served, or what was computed and put.

    Attributes:
        chunks: How many.
        nbytes: Their bytes.
        verified_bytes: Those of them that were compared and are right.
        calls: Durations of the calls that brought them. A call that several tiers answered is the
            last one's: that is what was waited for.
        timed_bytes: Bytes that the tier itself brought in these calls.
    """

    chunks: int = 0
    nbytes: int = 0
    verified_bytes: int = 0
    calls: Histogram = attrs.field(factory=Histogram)
    timed_bytes: int = 0


@attrs.define
class Tally:
    """What came of a replay so far.

    Attributes:
        traffic: Tier → what it served, in order of look-up; `COMPUTED` last.
        requests: Requests served.
        recomputed: Chunks that were computed though they had been before.
        wrong_values: Values that were not what they must be.
        faults: What was wrong with the first few of them.
        elapsed_s: Time since the start.
    """

    traffic: dict[str, Traffic]
    requests: int = 0
    recomputed: int = 0
    wrong_values: int = 0
    faults: list[str] = attrs.field(factory=list)
    elapsed_s: float = 0.0

    @property
    def chunks(self) -> int:
        """Chunks served, from a tier or computed."""
        return sum(traffic.chunks for traffic in self.traffic.values())


class Replay:
    """Serves requests from one store.

    Attributes:
        tally: What came of it, always up to date.
    """

    def __init__(
        self, store: TieredStore, contents: Contents, *, tiers: Iterable[str], l1_bytes: int
    ) -> None:
        """Set up.

        Args:
            store: An open store.
            contents: What the chunks hold.
            tiers: Names of the store's tiers, in order of look-up.
            l1_bytes: Capacity of L1; a quarter of it is leased at a time, and put at a time.
        """
        self.tally: Tally = Tally({name: Traffic() for name in (*tiers, COMPUTED)})
        self._order = {name: place for place, name in enumerate(self.tally.traffic)}
        self._store = store
        self._contents = contents
        self._computed: set[int] = set()
        block_bytes = contents.value_bytes + _BLOCK_BYTES
        self._window = max(1, l1_bytes // WINDOW_SHARE_OF_L1 // block_bytes)

    async def run(self, requests: Iterable[Request]) -> None:
        """Serve requests one after another; may be cancelled at any time."""
        began = time.perf_counter()
        for request in requests:
            await self._serve(request.chunks)
            self.tally.requests += 1
            self.tally.elapsed_s = time.perf_counter() - began

    async def _serve(self, chain: Sequence[int]) -> None:
        known = await self._store.match_prefix(map(self._contents.key, chain))
        missing = dict.fromkeys(chain[known:])
        with ExitStack() as leases:
            for window in self._windows(chain[:known]):
                leases.close()
                missing |= dict.fromkeys(await self._lease(window, leases))
            for window in self._windows(list(missing)):
                await self._compute(window)

    async def _lease(self, chunks: Sequence[int], leases: ExitStack) -> list[int]:
        """Lease chunks until `leases` is closed; return those that were gone meanwhile."""
        sizes = [self._contents.value_bytes] * len(chunks)
        began = time.perf_counter()
        results = await self._store.get_many(map(self._contents.key, chunks), sizes=sizes)
        duration_s = time.perf_counter() - began
        leases.enter_context(results)
        right: list[tuple[int, MemoryObject]] = []
        leases.callback(self._check_again, right)
        gone: list[int] = []
        brought: dict[str, int] = {}
        for chunk, result in zip(chunks, results, strict=True):
            value, tier = result.object, result.tier
            if value is None or tier is None:
                gone.append(chunk)
                continue
            traffic = self.tally.traffic[tier]
            traffic.chunks += 1
            traffic.nbytes += value.nbytes
            brought[tier] = brought.get(tier, 0) + value.nbytes
            if self._is_right(chunk, value, "as it came"):
                traffic.verified_bytes += value.nbytes
                right.append((chunk, value))
        if brought:
            last = max(brought, key=self._order.__getitem__)
            self._time(last, duration_s, brought[last])
        return gone

    async def _compute(self, chunks: Sequence[int]) -> None:
        values = [(self._contents.key(chunk), self._contents.value(chunk)) for chunk in chunks]
        began = time.perf_counter()
        await self._store.put_many(values)
        duration_s = time.perf_counter() - began
        nbytes = len(values) * self._contents.value_bytes
        traffic = self.tally.traffic[COMPUTED]
        traffic.chunks += len(values)
        traffic.nbytes += nbytes
        self.tally.recomputed += len(self._computed.intersection(chunks))
        self._computed.update(chunks)
        self._time(COMPUTED, duration_s, nbytes)

    def _time(self, tier: str, duration_s: float, nbytes: int) -> None:
        self.tally.traffic[tier].calls.record(duration_s)
        self.tally.traffic[tier].timed_bytes += nbytes

    def _check_again(self, right: Sequence[tuple[int, MemoryObject]]) -> None:
        for chunk, value in right:
            self._is_right(chunk, value, "at the end of its lease")

    def _is_right(self, chunk: int, value: MemoryObject, when: str) -> bool:
        if self._contents.is_right(chunk, value.view):
            return True
        self.tally.wrong_values += 1
        if len(self.tally.faults) < _MAX_FAULTS:
            problem = self._contents.problem(chunk, value.view)
            self.tally.faults.append(f"chunk {chunk} from {value.tier}, {when}: {problem}")
        return False

    def _windows(self, items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
        for at in range(0, len(items), self._window):
            yield items[at : at + self._window]
