"""The faulty backend does what its faults say, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from tieredkv.errors import ConfigError, TierError, TierFullError, TierUnavailableError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus, ReadOutcome, WriteOutcome
from tieredkv.testing.backends.requests import Landing, Source, give_up
from tieredkv.testing.faults import FAULT_KINDS, Fault, FaultKind, FaultyBackend
from tieredkv.testing.memory import MemoryBackend, MemoryMedium

pytestmark = pytest.mark.anyio

VALUE = bytes(range(9))
TORN = bytes(byte ^ 0xFF for byte in VALUE[:5]) + VALUE[5:]
UNTOUCHED = Landing("", 9).value


@pytest.fixture
def medium() -> MemoryMedium:
    medium = MemoryMedium()
    medium.put("name", VALUE)
    medium.put("other", VALUE)
    return medium


@pytest.fixture
async def backend(medium: MemoryMedium) -> AsyncIterator[FaultyBackend]:
    backend = FaultyBackend(MemoryBackend(medium))
    await backend.open()
    yield backend
    await backend.aclose()


async def read(backend: FaultyBackend, *names: str) -> list[tuple[GetStatus, bytes]]:
    landings = [Landing(name, 9, split_at=4) for name in names]
    outcomes = await backend.read_many([landing.request() for landing in landings])
    assert all(landing.guards_hold for landing in landings)
    return [
        (outcome.status, landing.value) for outcome, landing in zip(outcomes, landings, strict=True)
    ]


async def write(backend: FaultyBackend, *items: tuple[str, bytes]) -> list[WriteOutcome]:
    return await backend.write_many([Source(*item).request() for item in items])


@pytest.mark.parametrize(
    ("kind", "landed"),
    [
        ("noop", UNTOUCHED),
        ("torn", TORN),
        ("truncated", VALUE[:4] + UNTOUCHED[4:]),
    ],
)
async def test_a_damaged_read_lands_damaged_and_its_neighbour_whole(
    backend: FaultyBackend, kind: FaultKind, landed: bytes
) -> None:
    backend.inject(Fault("read", kind, "name"))
    outcomes = await read(backend, "name", "other")
    assert outcomes == [(GetStatus.HIT, landed), (GetStatus.HIT, VALUE)]
    assert await read(backend, "name") == [(GetStatus.HIT, VALUE)]


async def test_the_check_sees_the_damage_and_is_fed_nothing(backend: FaultyBackend) -> None:
    landing = Landing(
        "name",
        9,
        answer=lambda landed: GetStatus.HIT if landed == VALUE else GetStatus.CORRUPT,
    )
    backend.inject(Fault("read", "torn"))
    assert await backend.read_many([landing.request()]) == [ReadOutcome(GetStatus.CORRUPT)]
    assert not landing.check.fed


async def test_there_is_nothing_to_damage_where_nothing_is(backend: FaultyBackend) -> None:
    backend.inject(Fault("read", "torn"))
    assert await read(backend, "absent") == [(GetStatus.MISS, UNTOUCHED)]


@pytest.mark.parametrize(
    ("kind", "stored"), [("noop", VALUE), ("torn", TORN[::-1]), ("truncated", VALUE[:4])]
)
async def test_a_damaged_write_reports_success(
    backend: FaultyBackend, medium: MemoryMedium, kind: FaultKind, stored: bytes
) -> None:
    new = VALUE if kind == "truncated" else TORN[::-1]
    if kind == "torn":
        new = bytes(byte ^ 0xFF for byte in stored[:5]) + stored[5:]
    backend.inject(Fault("write", kind, "name"))
    outcomes = await write(backend, ("other", b"old"), ("name", new), ("other", b"new"))
    assert [outcome.status for outcome in outcomes] == ["skipped", "stored", "stored"]
    assert medium.get("name") == stored
    assert medium.get("other") == b"new"


@pytest.mark.parametrize(
    ("error", "written", "deleted"),
    [
        (TierUnavailableError, PutStatus.UNKNOWN, DeleteStatus.UNKNOWN),
        (TierFullError, PutStatus.FAILED, DeleteStatus.FAILED),
    ],
)
async def test_a_raised_fault_does_nothing_and_says_so(
    backend: FaultyBackend,
    medium: MemoryMedium,
    error: type[TierError],
    written: PutStatus,
    deleted: DeleteStatus,
) -> None:
    backend.inject(
        *(Fault(operation, "raise", error=error) for operation in ("read", "write", "stat")),
        Fault("delete", "raise", error=error),
    )
    assert await read(backend, "name") == [(GetStatus.UNKNOWN, UNTOUCHED)]
    (outcome,) = await write(backend, ("name", b"new"))
    assert (outcome.status, type(outcome.error)) == (written, error)
    (stat,) = await backend.stat_many(["name"])
    assert (stat.status, type(stat.error)) == (GetStatus.UNKNOWN, error)
    (delete,) = await backend.delete_many(["name"])
    assert (delete.status, type(delete.error)) == (deleted, error)
    assert medium.get("name") == VALUE


async def test_a_delete_that_does_nothing_reports_success(
    backend: FaultyBackend, medium: MemoryMedium
) -> None:
    backend.inject(Fault("delete", "noop"))
    (outcome,) = await backend.delete_many(["name"])
    assert outcome.status is DeleteStatus.DELETED
    assert medium.get("name") == VALUE


async def test_opening_and_listing_raise(medium: MemoryMedium) -> None:
    backend = FaultyBackend(MemoryBackend(medium), [Fault("open", "raise"), Fault("list", "raise")])
    with pytest.raises(TierUnavailableError, match="memory: open"):
        await backend.open()
    await backend.open()
    with pytest.raises(TierUnavailableError, match="memory: list"):
        [entry async for entry in backend.list_names()]
    assert len([entry async for entry in backend.list_names()]) == 2
    await backend.aclose()


async def test_late_calls_take_effect_in_their_order_though_their_callers_have_left(
    backend: FaultyBackend, medium: MemoryMedium
) -> None:
    backend.inject(Fault("write", "late", "name", times=2), Fault("read", "late"))
    landing = Landing("name", 5)
    for count, value in enumerate((b"first", b"later"), start=1):
        source = Source("name", value)
        await give_up(
            lambda source=source: backend.write_many([source.request()]),  # type: ignore[misc]
            lambda count=count: backend.until_held(count),  # type: ignore[misc]
        )
    await give_up(lambda: backend.read_many([landing.request()]), lambda: backend.until_held(3))
    assert medium.get("name") == VALUE
    assert landing.is_untouched
    assert landing.is_lent
    await backend.land()
    assert medium.get("name") == b"later"
    assert landing.value == b"later"
    await landing.returned()
    assert backend.num_held == 0


async def test_a_late_call_is_answered_when_it_lands(backend: FaultyBackend) -> None:
    backend.inject(Fault("stat", "late", "name"))
    async with anyio.create_task_group() as tasks:

        async def stat() -> None:
            (late, absent) = await backend.stat_many(["name", "absent"])
            assert (late.status, late.stored_bytes) == (GetStatus.HIT, 9)
            assert absent.status is GetStatus.MISS

        tasks.start_soon(stat)
        await backend.until_held()
        await backend.land()


async def test_the_neighbours_of_a_late_write_are_written_at_once(
    backend: FaultyBackend, medium: MemoryMedium
) -> None:
    backend.inject(Fault("write", "hang", "name"))
    sources = [Source("name", b"new"), Source("other", b"new")]
    await give_up(
        lambda: backend.write_many([source.request() for source in sources]), backend.until_held
    )
    assert (medium.get("name"), medium.get("other")) == (VALUE, b"new")


async def test_what_hangs_is_forgotten_with_its_caller(
    backend: FaultyBackend, medium: MemoryMedium
) -> None:
    backend.inject(Fault("write", "hang"))
    source = Source("name", b"new")
    await give_up(lambda: backend.write_many([source.request()]), backend.until_held)
    assert backend.num_held == 0
    await source.returned()
    await backend.land()
    assert medium.get("name") == VALUE


@pytest.mark.parametrize("kind", ["late", "hang"])
async def test_closing_answers_what_is_held(
    backend: FaultyBackend, medium: MemoryMedium, kind: FaultKind
) -> None:
    backend.inject(Fault("write", kind))
    statuses: list[PutStatus] = []

    async def call() -> None:
        statuses.extend(outcome.status for outcome in await write(backend, ("name", b"new")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await backend.until_held()
        await backend.aclose()
    assert statuses == [PutStatus.UNKNOWN]
    assert medium.get("name") == VALUE


async def test_a_schedule_counts_requests_of_its_name(backend: FaultyBackend) -> None:
    backend.inject(Fault("stat", "raise", "name", after=1, times=2))
    outcomes = await backend.stat_many(["name", "other", "name", "other", "name", "name"])
    statuses = [outcome.status for outcome in outcomes]
    hit, unknown = GetStatus.HIT, GetStatus.UNKNOWN
    assert statuses == [hit, hit, unknown, hit, unknown, hit]


async def test_a_fault_without_end_ends_when_it_is_called_off(backend: FaultyBackend) -> None:
    backend.inject(Fault("stat", "raise", times=None))
    for _ in range(5):
        assert (await backend.stat_many(["name"]))[0].status is GetStatus.UNKNOWN
    backend.calm()
    assert (await backend.stat_many(["name"]))[0].status is GetStatus.HIT


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("raed", "torn"), "operation"),
        (("delete", "torn"), "kind"),
        (("read", "torn", None, -1), "after"),
        (("read", "torn", None, 0, 0), "times"),
        (("open", "raise", "name"), "name"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Fault(*arguments)  # type: ignore[arg-type]


def test_every_operation_knows_its_kinds() -> None:
    for operation, kinds in FAULT_KINDS.items():
        for kind in kinds:
            assert Fault(operation, kind).kind == kind
