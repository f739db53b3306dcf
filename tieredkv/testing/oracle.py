"""What a medium may hold after all that happened to it: the judge of the state machine.

Nothing here is derived from a backend: it knows outcomes, as the contract defines them, and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tieredkv.results import DeleteStatus, GetStatus

__all__ = ["Content", "Oracle"]

Content: TypeAlias = bytes | None
"""What a name holds: exactly these bytes, or nothing."""


class Oracle:
    """Keeps, for every name, the contents that are possible.

    After an answer there is one. A call without an answer leaves two, the old and the new content,
    and the new one stays possible whatever is written later: the call may still be on its way. Only
    when the backend has been closed has everything landed that ever will.
    """

    def __init__(self) -> None:
        self._settled: dict[str, set[Content]] = {}
        self._adrift: dict[str, set[Content]] = {}
        self._genuine: set[tuple[str, bytes]] = set()

    # -- what happened ---------------------------------------------------------------------------

    def intends(self, name: str, value: bytes) -> None:
        """Somebody is about to write a value."""
        self._genuine.add((name, value))

    def answered(self, name: str, new: Content) -> None:
        """A write or delete has taken effect."""
        self._settled[name] = {new}

    def unanswered(self, name: str, new: Content) -> None:
        """A write or delete may have taken effect, or may do so yet."""
        self._adrift.setdefault(name, set()).add(new)

    def observed(self, name: str, content: Content) -> None:
        """The name holds this now, and keeps it if nothing is on its way."""
        if not self._adrift.get(name):
            self._settled[name] = {content}

    def landed(self) -> None:
        """The backend was closed: nothing is on its way any more."""
        for name, contents in self._adrift.items():
            self._settled[name] = self.possible(name) | contents
        self._adrift.clear()

    # -- what may be seen ------------------------------------------------------------------------

    def possible(self, name: str) -> set[Content]:
        """Return what a name may hold."""
        return self._settled.get(name, {None}) | self._adrift.get(name, set())

    def is_genuine(self, name: str, value: bytes) -> bool:
        """Whether somebody has written exactly these bytes under the name; they may be old."""
        return (name, value) in self._genuine

    def reads(
        self, name: str, wanted: int, also: Iterable[Content] = ()
    ) -> set[tuple[GetStatus, Content]]:
        """Return the possible answers to a read of `wanted` bytes, each with what is stored.

        `also` are contents that may be stored besides those known here.
        """
        answers: set[tuple[GetStatus, Content]] = set()
        for content in self.possible(name) | set(also):
            if content is None:
                status = GetStatus.MISS
            elif len(content) != wanted:
                status = GetStatus.REJECTED
            elif self.is_genuine(name, content):
                status = GetStatus.HIT
            else:
                status = GetStatus.CORRUPT
            answers.add((status, content))
        return answers

    def sizes(self, name: str) -> set[int | None]:
        """Return the sizes that a name may have, None for absent."""
        return {None if content is None else len(content) for content in self.possible(name)}

    def deletes(self, name: str) -> set[DeleteStatus]:
        """Return the possible answers to a delete."""
        return {
            DeleteStatus.ABSENT if content is None else DeleteStatus.DELETED
            for content in self.possible(name)
        }

    def check_listing(self, names: Iterable[str], prefix: str, listed: Mapping[str, int]) -> None:
        """Compare a listing with what it may be.

        Raises:
            AssertionError: A name is missing, too many, or has a size that it cannot have.
        """
        expected = {name for name in names if name.startswith(prefix)}
        assert set(listed) <= expected, "a name is listed that was never written"
        for name in expected:
            assert listed.get(name) in self.sizes(name), f"{name!r} is listed wrongly"
