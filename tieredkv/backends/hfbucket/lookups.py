"""Questions about files, put together: whoever asks at the same time shares a request."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from tieredkv.backends.hfbucket.ledger import Ledger
from tieredkv.backends.hfbucket.metadata import MetadataCache
from tieredkv.clients.hub import MAX_PATHS, HubClient
from tieredkv.clients.hub_answers import FileInfo
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.tasks import Detached

__all__ = ["Answer", "Lookups"]

Answer: TypeAlias = FileInfo | HubError | None
"""The file; None: there is none; or why that is not known."""

MAX_REQUESTS: Final = 4
"""Requests at a time; what is asked meanwhile is put together."""


class _Question:
    """The paths of one call that have no answer yet."""

    __slots__ = ("answered", "answers", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.answers: dict[str, Answer] = {}
        self.answered = anyio.Event()


class Lookups:
    """Asks the Hub about files, or the cache. On one event loop.

    Paths whose state is unknown after a write or delete without an answer are asked about along
    with others, until it is known.
    """

    def __init__(self, hub: HubClient, cache: MetadataCache, ledger: Ledger) -> None:
        self._hub = hub
        self._cache = cache
        self._ledger = ledger
        self._detached = Detached()
        self._waiting: dict[str, list[_Question]] = {}
        self._requests = 0

    def known(self, paths: Iterable[str]) -> dict[str, FileInfo | None]:
        """Return what the cache knows."""
        found = ((path, self._cache.find(path)) for path in paths)
        return {path: hit[0] for path, hit in found if hit is not None}

    async def ask(self, paths: Iterable[str]) -> dict[str, Answer]:
        """Ask the Hub, by requests that begin after this call."""
        wanted = dict.fromkeys(paths)
        if not wanted:
            return {}
        question = _Question(len(wanted))
        for path in wanted:
            self._waiting.setdefault(path, []).append(question)
        wished = -(-len(self._waiting) // MAX_PATHS)
        for _ in range(min(wished, MAX_REQUESTS - self._requests)):
            self._requests += 1
            self._detached.spawn(self._pump, None)
        await question.answered.wait()
        return question.answers

    async def _pump(self, _: None) -> None:
        try:
            await checkpoint()  # whoever runs in this turn of the loop may join
            while self._waiting:
                chunk = {
                    path: self._waiting.pop(path) for path in [*islice(self._waiting, MAX_PATHS)]
                }
                await self._send(chunk)
        finally:
            self._requests -= 1

    async def _send(self, chunk: dict[str, list[_Question]]) -> None:
        asked = self._cache.now
        paths = [*chunk]
        paths += islice(
            (path for path in self._ledger.unsettled if path not in chunk), MAX_PATHS - len(chunk)
        )
        found: dict[str, FileInfo] = {}
        error: HubError | None = HubError(HubFailure.UNREACHABLE, "the event loop has ended")
        try:
            found, error = await self._hub.paths_info(paths), None
        except HubError as raised:
            error = raised if raised.failure is not HubFailure.NO_BUCKET else None
        finally:
            if error is None:
                for path in paths:
                    self._cache.learn(path, found.get(path), asked=asked)
                    self._ledger.settle(path, found.get(path), asked=asked)
            for path, questions in chunk.items():
                for question in questions:
                    question.answers[path] = found.get(path) if error is None else error
                    question.left -= 1
                    if not question.left:
                        question.answered.set()
