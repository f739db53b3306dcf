"""`Lookup`: what a look-up has found and holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tieredkv.errors import SizeMismatchError
from tieredkv.pool.lease import GetResult, GetResults
from tieredkv.results import GetStatus, StatResult, prefix_length

if TYPE_CHECKING:
    from tieredkv.tiers.reads import Reads

__all__ = ["Lookup"]


class Lookup:
    """What a look-up has found; it is pinned until the look-up's block is left.

    Attributes:
        results: One a key, in the order asked: where it is, or why that is not known.
    """

    __slots__ = ("_names", "_reads", "results")

    def __init__(
        self, results: Sequence[StatResult], names: Sequence[str], reads: Callable[[], Reads]
    ) -> None:
        self.results: tuple[StatResult, ...] = tuple(results)
        self._names = names
        self._reads = reads

    @property
    def hits(self) -> tuple[bool, ...]:
        """Whether each key was found, in the order asked."""
        return tuple(result.status is GetStatus.HIT for result in self.results)

    @property
    def prefix_length(self) -> int:
        """How many of the leading keys were found."""
        return prefix_length(self.results)

    async def load(self) -> GetResults:
        """Lease what was found; one result a key, in the order asked.

        What was not found is not looked for again. What was found may be gone nevertheless, where a
        tier has evicted it, or another process has deleted it: so look at the results.

        Raises:
            StoreClosedError: The store was closed meanwhile.
        """
        results = [GetResult(r.key, r.status, None, r.tier, r.error) for r in self.results]
        found = {place: r.info.nbytes for place, r in enumerate(self.results) if r.info is not None}
        try:
            await self._load(results, found)
            # Those that were put again meanwhile, with another size.
            changed = [p for p in found if isinstance(results[p].error, SizeMismatchError)]
            if changed:
                await self._load(results, dict.fromkeys(changed))
        except BaseException:
            GetResults(results).release()
            raise
        return GetResults(results)

    async def _load(
        self, results: list[GetResult], sizes: dict[int, int] | dict[int, None]
    ) -> None:
        keys = [results[place].key for place in sizes]
        names = [self._names[place] for place in sizes]
        got = await self._reads().get_many(keys, names, list(sizes.values()))
        for place, result in zip(sizes, got, strict=True):
            results[place] = result
