"""Defects of naming, looking up, deleting and listing."""

from __future__ import annotations

import fnmatch
import unicodedata
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import aclosing
from typing import Any

import attrs

from tests.testing.defects.registry import MISS, caught_by
from tieredkv.backends.base import BackendStatus, ReadRequest, StoredName, WriteRequest
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


@caught_by("test_stat_tells_what_is_stored")
class TakesEmptyForAbsent(MemoryBackend):
    def _stat(self, client: MemoryMedium, name: str) -> StatOutcome:
        outcome = super()._stat(client, name)
        return outcome if outcome.stored_bytes else StatOutcome(GetStatus.MISS)


@caught_by("test_delete_tells_what_was_there")
class DeletesWhatIsNotThere(MemoryBackend):
    def _delete(self, client: MemoryMedium, name: str) -> DeleteOutcome:
        super()._delete(client, name)
        return DeleteOutcome(DeleteStatus.DELETED)


@caught_by("test_delete_tells_what_was_there", "test_one_name_twice_in_a_delete_is_deleted_once")
class FailsToDeleteWhatIsNotThere(MemoryBackend):
    def _delete(self, client: MemoryMedium, name: str) -> DeleteOutcome:
        if not client.delete(name):
            raise KeyError(name)
        return DeleteOutcome(DeleteStatus.DELETED)


@caught_by("test_a_deleted_value_is_gone_until_it_is_written_again")
class BuriesNamesForGood(MemoryBackend):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._buried: set[str] = set()

    def _delete(self, client: MemoryMedium, name: str) -> DeleteOutcome:
        self._buried.add(name)
        return super()._delete(client, name)

    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        return MISS if request.name in self._buried else super()._read(client, request)


class _Renames(MemoryBackend):
    """Translates names on their way to the medium."""

    def name_of(self, name: str) -> str:
        raise NotImplementedError

    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        return super()._read(client, attrs.evolve(request, name=self.name_of(request.name)))

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        return super()._write(client, attrs.evolve(request, name=self.name_of(request.name)))

    def _stat(self, client: MemoryMedium, name: str) -> StatOutcome:
        return super()._stat(client, self.name_of(name))

    def _delete(self, client: MemoryMedium, name: str) -> DeleteOutcome:
        return super()._delete(client, self.name_of(name))


@caught_by("test_odd_names_stay_apart", "test_a_listing_has_every_name_once_with_its_size")
class IgnoresCase(_Renames):
    def name_of(self, name: str) -> str:
        return name.lower()


@caught_by("test_odd_names_stay_apart", "test_a_listing_has_every_name_once_with_its_size")
class NormalizesUnicode(_Renames):
    def name_of(self, name: str) -> str:
        return unicodedata.normalize("NFC", name)


@caught_by("test_odd_names_stay_apart", "test_a_listing_has_every_name_once_with_its_size")
class CutsLongNames(_Renames):
    def name_of(self, name: str) -> str:
        return name[:255]


@caught_by("test_a_listing_has_every_name_once_with_its_size")
class TakesPrefixesForPatterns(MemoryBackend):
    def _list(
        self, client: MemoryMedium, prefix: str
    ) -> Generator[list[StoredName], MemoryMedium | None, None]:
        for page in super()._list(client, ""):
            yield [entry for entry in page if fnmatch.fnmatchcase(entry.name, f"{prefix}*")]


@caught_by("test_a_listing_may_be_left_early")
class ListsOnceAtATime(MemoryBackend):
    listing = False

    async def list_names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        if self.listing:
            return
        self.listing = True
        async with aclosing(super().list_names(prefix)) as entries:  # type: ignore[type-var]
            async for entry in entries:
                yield entry
        self.listing = False


@caught_by("test_a_big_batch_has_all_its_outcomes_in_order")
class AnswersAThousandAtMost(MemoryBackend):
    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        return await super().stat_many(names[:1000])


@caught_by("test_an_empty_batch_has_no_outcomes")
class AnswersTheEmptyBatch(MemoryBackend):
    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        return await super().stat_many(names or [""])


@caught_by("test_status_of_a_working_backend_is_healthy")
class IsNeverWell(MemoryBackend):
    async def status(self) -> BackendStatus:
        return BackendStatus(is_healthy=False, reason="a headache")
