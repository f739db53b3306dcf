"""What a tier has just said it does not hold, so that it need not be asked again at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

__all__ = ["Absences"]

_MOST_NAMES: Final = 65_536


class Absences:
    """The names that one tier was without a moment ago.

    A put of this store ends an absence; one of another process is seen when its time is over.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Set up; with a `ttl_s` of 0 nothing is remembered."""
        self._ttl_s = ttl_s
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()  # the next to end is first

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, name: object) -> bool:
        if not self._until:
            return False
        now = self._clock()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        return name in self._until

    def add(self, name: str) -> None:
        """Note that the tier has just answered with a miss."""
        if not self._ttl_s:
            return
        self._until[name] = self._clock() + self._ttl_s
        self._until.move_to_end(name)
        if len(self._until) > _MOST_NAMES:
            self._until.popitem(last=False)

    def discard(self, name: str) -> None:
        """Forget an absence: a value may have come."""
        self._until.pop(name, None)
