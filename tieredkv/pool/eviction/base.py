"""What every eviction policy promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

__all__ = ["EvictionPolicy"]


class EvictionPolicy(ABC):
    """Keeps an order over the names that a tier holds. It owns nothing else: no bytes, no I/O.

    Every call takes constant time, amortised, and never fails for a name in whatever state.
    """

    @abstractmethod
    def insert(self, name: str) -> None:
        """Note that a name has come in (or been replaced: then it counts as accessed, too)."""

    @abstractmethod
    def access(self, name: str) -> None:
        """Note that a name was read; one that is not held changes nothing."""

    @abstractmethod
    def remove(self, name: str, *, evicted: bool) -> None:
        """Note that a name has left: chosen by the policy (`evicted`) or for another reason."""

    @abstractmethod
    def victims(self) -> Iterator[str]:
        """Iterate over the held names, the one to evict first at the front.

        The caller takes those it can evict and calls `remove` for them *after* it has stopped
        iterating. Starting an iteration changes nothing.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Number of names held."""
