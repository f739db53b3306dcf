"""Names: any wire name is one value's and no other's, for looking up, deleting and listing too."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from tieredkv.backends.base import Backend, BackendStatus, StoredName
from tieredkv.keys import Key, ObjectKey, wire_name_of
from tieredkv.results import DeleteOutcome, DeleteStatus, GetStatus, PutStatus, StatOutcome
from tieredkv.testing.backends.fixtures import KitFixtures
from tieredkv.testing.backends.requests import Landing, Source
from tieredkv.testing.content import content, gist

__all__ = ["NameConformance"]

_DELETED: Final = DeleteOutcome(DeleteStatus.DELETED)
_ABSENT: Final = DeleteOutcome(DeleteStatus.ABSENT)
_MISS: Final = StatOutcome(GetStatus.MISS)

_ODD_KEYS: Final = (
    *("name", "Name", "NAME", "name.", "name ", " name", "name\u00a0", "na%6De", "na\\me"),
    *(".", "..", "../name", "/name", "name/", "name/name", "//", "~", "~name", "-name", "+name"),
    *("a*", "a?", "a[a-z]", "a[^a]", "a\\*", "$name", "`name`", "'", '"', "|", "name;name", "#"),
    *("%", "%%", "%2F", "%252F", "@", "{name}", "{", "NUL", "con.txt", "nul\x00l", "line\nline"),
    *("\u00e9", "e\u0301", "\u017f", "s", "S", "\u0130", "i\u0307", "\u1e9e", "\u00df", "ss"),
    *("\u202ename", "\U0001f600", "\U0001f600" * 128, "x" * 512, "X" * 512, "%" * 512, "/" * 512),
    *("x" * length for length in (199, 200, 201, 249, 250, 251, 254, 255, 256)),
)
_ODD_OBJECT_KEYS: Final = (
    ObjectKey("org/model", 0xFF, b"\x00\x01"),
    ObjectKey("Org/Model", 0xFF, b"\x00\x01"),
    ObjectKey("org/model", 0xFF, b"\x00\x01", 1),
    ObjectKey("org/model", 0xFF, b"\x00\x01", 0, "tenant"),
    ObjectKey("..", 0, b"\x00" * 32, 2**64, "%40"),
    ObjectKey("\U0001f600" * 100, 2**32 - 1, b"\xff" * 64, 0, "\U0001f600" * 128),
)
_ODD_ALL: Final[tuple[Key, ...]] = (*_ODD_KEYS, *_ODD_OBJECT_KEYS)
_PREFIXES: Final = ("na", "name/", "a*", "a?", "a[", "a\\", "%", "%2", "\u00e9", "org/", "absent")
_ODD_NAMES: Final = tuple(wire_name_of(key) for key in _ODD_ALL)


class NameConformance(KitFixtures):
    """`Backend.stat_many`, `Backend.delete_many`, `Backend.list_names` and what a name may be."""

    async def test_stat_tells_what_is_stored(self, backend: Backend) -> None:
        for size in self.sizes:
            self.raw_put(f"stat-{size}", content("stat", size))
        names = [name for size in self.sizes for name in (f"stat-{size}", f"absent-{size}")]
        outcomes = await backend.stat_many([*names, *names])
        expected = [
            outcome for size in self.sizes for outcome in (StatOutcome(GetStatus.HIT, size), _MISS)
        ]
        assert outcomes == expected * 2

    async def test_delete_tells_what_was_there(self, backend: Backend) -> None:
        items = [(f"delete-{number}", content(number, 100)) for number in range(4)]
        await self.write(backend, *items)
        outcomes = await backend.delete_many(["delete-0", "absent", "delete-2"])
        assert outcomes == [_DELETED, _ABSENT, _DELETED]
        assert await backend.delete_many(["delete-2", "delete-3"]) == [_ABSENT, _DELETED]
        left = [self.raw_get(name) for name, _ in items]
        assert list(map(gist, left)) == list(map(gist, [None, items[1][1], None, None]))

    async def test_a_deleted_value_is_gone_until_it_is_written_again(
        self, backend: Backend
    ) -> None:
        await self.write(backend, ("again", content("old", 500)))
        await backend.delete_many(["again"])
        landing = Landing("again", 500)
        (read,) = await backend.read_many([landing.request()])
        assert (read.status, landing.is_untouched) == (GetStatus.MISS, True)
        assert await backend.stat_many(["again"]) == [_MISS]
        await self.write(backend, ("again", content("new", 400)))
        landing = Landing("again", 400)
        (read,) = await backend.read_many([landing.request()])
        assert (read.status, landing.value) == (GetStatus.HIT, content("new", 400))

    async def test_one_name_twice_in_a_delete_is_deleted_once(self, backend: Backend) -> None:
        await self.write(backend, ("twice", content("twice", 500)))
        outcomes = await backend.delete_many(["twice", "twice"])
        assert _DELETED in outcomes
        assert set(outcomes) <= {_DELETED, _ABSENT}
        assert self.raw_get("twice") is None

    async def test_odd_names_stay_apart(self, backend: Backend) -> None:
        stored = {name: content(name, 40) for name in _ODD_NAMES}
        await self.write(backend, *stored.items())
        assert [gist(self.raw_get(name)) for name in stored] == list(map(gist, stored.values()))
        landings = [Landing(name, 40) for name in stored]
        reads = await backend.read_many([landing.request() for landing in landings])
        assert {read.status for read in reads} == {GetStatus.HIT}
        assert [gist(landing.value) for landing in landings] == list(map(gist, stored.values()))
        while stored:
            name, _ = stored.popitem()
            assert await backend.delete_many([name]) == [_DELETED]
            gone = await backend.stat_many([name])
            assert gone == [_MISS]
            stats = await backend.stat_many(list(stored))
            assert stats == [StatOutcome(GetStatus.HIT, 40)] * len(stored), name

    async def test_a_listing_has_every_name_once_with_its_size(self, backend: Backend) -> None:
        if not backend.capabilities.listable:
            return
        sizes = {name: place for place, name in enumerate(_ODD_NAMES)}
        await self.write(backend, *((name, content(name, size)) for name, size in sizes.items()))
        await self.write(backend, (_ODD_NAMES[0], b"another size"))
        sizes[_ODD_NAMES[0]] = 12
        await backend.delete_many([_ODD_NAMES[1]])
        del sizes[_ODD_NAMES[1]]
        assert await _listed(backend) == sorted(sizes.items())
        for prefix in _PREFIXES:
            matching = [(name, size) for name, size in sizes.items() if name.startswith(prefix)]
            assert await _listed(backend, prefix) == sorted(matching), prefix

    async def test_a_listing_may_be_left_early(self, backend: Backend) -> None:
        if not backend.capabilities.listable:
            return
        names = [f"early-{number}" for number in range(50)]
        await self.write(backend, *((name, b"") for name in names))
        listing = backend.list_names()
        async for entry in listing:
            assert entry.name in names
            break
        if isinstance(listing, AsyncGenerator):
            await listing.aclose()
        assert len(await _listed(backend)) == 50

    async def test_a_big_batch_has_all_its_outcomes_in_order(self, backend: Backend) -> None:
        names = [f"many-{number}" for number in range(self.many)]
        values = [content(name, number % 150) for number, name in enumerate(names)]
        written = await backend.write_many(
            [Source(*item).request() for item in zip(names, values, strict=True)]
        )
        assert [outcome.status for outcome in written] == [PutStatus.STORED] * self.many
        deleted = await backend.delete_many(names[::3])
        assert deleted == [_DELETED] * len(names[::3])
        stats = await backend.stat_many(names)
        landings = [Landing(name, len(value)) for name, value in zip(names, values, strict=True)]
        reads = await backend.read_many([landing.request() for landing in landings])
        assert len(stats) == len(reads) == self.many
        for number, value in enumerate(values):
            if number % 3 == 0:
                assert (stats[number], reads[number].status) == (_MISS, GetStatus.MISS)
                assert landings[number].is_untouched
            else:
                assert stats[number] == StatOutcome(GetStatus.HIT, len(value))
                assert reads[number].status is GetStatus.HIT
                assert gist(landings[number].value) == gist(value)
        if backend.capabilities.listable:
            expected = [(name, number % 150) for number, name in enumerate(names) if number % 3]
            listed = await _listed(backend, "many-")
            assert len(listed) == len(expected)
            assert not set(listed) ^ set(expected)

    async def test_an_empty_batch_has_no_outcomes(self, backend: Backend) -> None:
        assert await backend.read_many([]) == []
        assert await backend.write_many([]) == []
        assert await backend.stat_many([]) == []
        assert await backend.delete_many([]) == []

    async def test_status_of_a_working_backend_is_healthy(self, backend: Backend) -> None:
        await self.write(backend, ("status", b"value"))
        status = await backend.status()
        assert isinstance(status, BackendStatus)
        assert (status.is_healthy, status.reason) == (True, "")


async def _listed(backend: Backend, prefix: str = "") -> list[tuple[str, int]]:
    entries = [entry async for entry in backend.list_names(prefix)]
    assert all(isinstance(entry, StoredName) for entry in entries)
    return sorted((entry.name, entry.stored_bytes) for entry in entries)
