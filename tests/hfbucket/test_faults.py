"""What goes wrong at the Hub and the CAS, and what a caller hears of it."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.hfbucket.calls import hub_requests, opened, read, statuses, write
from tests.hfbucket.media import Buckets
from tieredkv.errors import TierError, TierFullError, TierUnavailableError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus
from tieredkv.testing import hub
from tieredkv.testing.backends.requests import PATIENCE_S, Landing, give_up
from tieredkv.testing.content import content

pytestmark = [pytest.mark.anyio, pytest.mark.network]


# -- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [None, 200, 422])
async def test_exactly_the_names_that_the_hub_lists_have_failed(
    buckets: Buckets, status: int | None
) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="/batch$", failed="/bad", status=status))
        outcomes = await write(backend, ("good", b"1"), ("bad", b"2"), ("good too", b"3"))
        assert statuses(outcomes) == [PutStatus.STORED, PutStatus.FAILED, PutStatus.STORED]
        assert "Injected failure" in str(outcomes[1].error)
        buckets.server.clear_faults()
        found = await backend.stat_many(["good", "bad", "good too"])
        assert statuses(found) == [GetStatus.HIT, GetStatus.MISS, GetStatus.HIT]
        assert (await backend.status()).details["current_size_bytes"] == 2


async def test_a_listed_failure_is_none_if_the_very_content_is_there(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        await write(backend, ("name", b"value"))
        buckets.server.inject(hub.Fault(path="/batch$", failed="name"))
        assert statuses(await write(backend, ("name", b"value"))) == [PutStatus.STORED]
        assert statuses(await write(backend, ("name", b"other"))) == [PutStatus.FAILED]


async def test_a_failure_in_the_middle_of_2500_names_stays_alone(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.clear_log()
        buckets.server.inject(hub.Fault(path="/batch$", failed="name-1234$"))
        names = [f"name-{number}" for number in range(2500)]
        outcomes = await write(backend, *((name, name.encode()) for name in names))
        bad = [
            name
            for name, o in zip(names, outcomes, strict=True)
            if o.status is not PutStatus.STORED
        ]
        assert bad == ["name-1234"]
        assert hub_requests(buckets.server, "/batch") == [("POST", "batch")] * 3
        found = await backend.stat_many(names)
        assert [n for n, o in zip(names, found, strict=True) if o.status is GetStatus.MISS] == bad
        buckets.server.clear_faults()
        deleted = await backend.delete_many(names)
        assert [
            n for n, o in zip(names, deleted, strict=True) if o.status is DeleteStatus.ABSENT
        ] == bad


async def test_a_write_that_lost_only_its_answer_is_stored(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="/batch$", drop=True, carried_out=True))
        assert statuses(await write(backend, ("name", b"value"))) == [PutStatus.STORED]
        assert (await read(backend, "name", b"value")).status is GetStatus.HIT
        deleted = await backend.delete_many(["name"])
        assert statuses(deleted) == [DeleteStatus.DELETED]
        assert buckets.get("name") is None


async def test_a_write_without_an_answer_is_unknown_and_asked_for_again(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="/batch$", drop=True, times=1))
        (outcome,) = await write(backend, ("name", b"value"))
        assert outcome.status is PutStatus.UNKNOWN
        assert isinstance(outcome.error, TierUnavailableError)
        assert (await backend.status()).details["unsettled_count"] == 1
        buckets.put("name", b"value")  # as if it landed late
        await backend.stat_many(["other"])
        details = (await backend.status()).details
        assert (details["unsettled_count"], details["current_size_bytes"]) == (0, 5)


async def test_a_delete_without_an_answer_is_unknown(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        await write(backend, ("name", b"value"))
        buckets.server.inject(hub.Fault(path="/batch$", drop=True, times=1))
        assert statuses(await backend.delete_many(["name"])) == [DeleteStatus.UNKNOWN]
        assert statuses(await backend.delete_many(["name"])) == [DeleteStatus.DELETED]


async def test_an_upload_that_fails_stores_nothing(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(method="POST", path="/cas/.*xorbs", status=400))
        outcomes = await write(backend, ("name", content("a", 100_000)), ("empty", b""))
        assert PutStatus.STORED not in statuses(outcomes)[:1]
        assert isinstance(outcomes[0].error, TierUnavailableError)
        assert buckets.get("name") is None


async def test_no_rights_or_space_makes_it_read_only(buckets: Buckets) -> None:
    buckets.put("name", b"value")
    async with opened(buckets) as backend:
        buckets.server.inject(
            hub.Fault(
                path="write-token$",
                status=403,
                headers={"X-Error-Message": "Private storage quota exceeded"},
            )
        )
        for _ in range(3):
            (outcome,) = await write(backend, ("other", b"value"))
            assert (outcome.status, outcome.reason) == (PutStatus.REJECTED, "read_only")
            assert isinstance(outcome.error, TierFullError)
        assert buckets.server.harmed(_last_fault(buckets)) == 1
        assert (await read(backend, "name", b"value")).status is GetStatus.HIT
        assert "quota" in (await backend.status()).reason


# -- the Hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_is_unknown_loud_and_not_repeated(buckets: Buckets, status: int) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", status=status))
        outcome = await read(backend, "name", b"value")
        assert outcome.status is GetStatus.UNKNOWN
        assert type(outcome.error) is TierError
        assert str(status) in str(outcome.error)
        assert buckets.server.harmed(_last_fault(buckets)) == 1
        assert not (await backend.status()).is_healthy
        buckets.server.clear_faults()
        assert (await read(backend, "name", b"value")).status is GetStatus.MISS
        assert (await backend.status()).is_healthy


@pytest.mark.parametrize(
    "fault",
    [
        hub.Fault(path="paths-info$", status=500, times=2),
        hub.Fault(path="paths-info$", status=503, times=1),
        hub.Fault(path="paths-info$", drop=True, times=1),
        hub.Fault(path="paths-info$", status=429, times=1),
        hub.Fault(path="read-token$", status=503, times=1),
        hub.Fault(path="/cas/v2/reconstructions", status=503, times=1),
        hub.Fault(path="/cas/v2/reconstructions", status=401, times=1),
        hub.Fault(path="/cas/data/", drop=True, times=1),
        hub.Fault(path="/cas/data/", truncate_bytes=100, times=1),
    ],
    ids=lambda fault: f"{fault.path} {fault.status or 'cut'}",
)
async def test_a_passing_failure_is_not_noticed(buckets: Buckets, fault: hub.Fault) -> None:
    value = content("value", 100_000)
    buckets.put("name", value)
    async with opened(buckets) as backend:
        buckets.server.inject(fault)
        assert (await read(backend, "name", value)).status is GetStatus.HIT


async def test_an_outage_is_not_an_empty_cache_and_soon_costs_one_request(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", status=503))
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(read, backend, "name", b"value")
        outcome = await read(backend, "name", b"value")
        assert outcome.status is GetStatus.UNKNOWN
        assert "attempt" in str(outcome.error)
        backend._bucket.hub.retries._tokens = 0.0  # type: ignore[union-attr]
        before = buckets.server.harmed(_last_fault(buckets))
        assert (await read(backend, "name", b"value")).status is GetStatus.UNKNOWN
        assert buckets.server.harmed(_last_fault(buckets)) == before + 1


async def test_a_pause_that_the_hub_asks_for_holds_for_all(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", status=429, retry_after_s=1, times=1))
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(backend.stat_many, [f"name-{number}"])
                await checkpoint()
            tasks.start_soon(write, backend, ("name", b"value"))
        assert (await backend.status()).is_healthy
        assert len(hub_requests(buckets.server, f"{buckets.id}/paths-info")) <= 6


async def test_a_pause_that_is_too_long_fails_at_once(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", status=429, rate_limit_s=300, times=1))
        for name in ("first", "second"):
            (outcome,) = await backend.stat_many([name])
            assert outcome.status is GetStatus.UNKNOWN
            assert isinstance(outcome.error, TierUnavailableError)
            assert "rate limit" in str(outcome.error)
        assert len(hub_requests(buckets.server, f"{buckets.id}/paths-info")) == 1


async def test_an_answer_that_is_none_is_an_error(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", status=200, body="<html>"))
        (outcome,) = await backend.stat_many(["name"])
        assert outcome.status is GetStatus.UNKNOWN
        buckets.server.clear_faults()
        buckets.server.inject(
            hub.Fault(
                path="paths-info$",
                status=200,
                body='[{"type": "file", "path": "prod/name", "size": 5, "xetHash": "../x"}]',
            )
        )
        assert (await read(backend, "name", b"value")).status is GetStatus.UNKNOWN
        buckets.server.clear_faults()
        buckets.put("good", b"value")
        assert (await read(backend, "good", b"value")).status is GetStatus.HIT


async def test_a_directory_under_a_name_is_no_value(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        body = '[{"type": "directory", "path": "prod/name"}]'
        buckets.server.inject(hub.Fault(path="paths-info$", status=200, body=body))
        assert statuses(await backend.stat_many(["name"])) == [GetStatus.MISS]
        assert (await read(backend, "name", b"value")).status is GetStatus.MISS


# -- contents ------------------------------------------------------------------------------------


async def test_tokens_that_end_early_are_replaced(buckets: Buckets) -> None:
    values = [(f"name-{number}", content(number, 50_000)) for number in range(8)]
    async with opened(buckets) as backend:
        await write(backend, *values)
        for _ in range(3):
            buckets.server.expire_xet_tokens()
            for name, value in values:
                assert (await read(backend, name, value)).status is GetStatus.HIT
            buckets.server.expire_xet_tokens()
            assert statuses(await write(backend, *values[:2])) == [PutStatus.STORED] * 2


async def test_a_refused_grant_is_not_kept(buckets: Buckets) -> None:
    value = content("value", 50_000)
    buckets.put("name", value)
    async with opened(buckets) as backend:
        buckets.server.inject(hub.Fault(path="-token$", status=401, times=1))
        assert (await read(backend, "name", value)).status is GetStatus.UNKNOWN
        assert (await read(backend, "name", value)).status is GetStatus.HIT
        buckets.server.inject(hub.Fault(path="-token$", status=401, times=1))
        assert statuses(await write(backend, ("other", value))) == [PutStatus.FAILED]
        assert statuses(await write(backend, ("other", value))) == [PutStatus.STORED]


async def test_contents_that_are_gone_are_unknown_until_the_name_is_gone(buckets: Buckets) -> None:
    value = content("value", 50_000)
    async with opened(buckets, metadata_ttl_s=3600) as backend:
        await write(backend, ("name", value))
        buckets.server.inject(hub.Fault(path="/cas/v2/reconstructions", status=404))
        assert (await read(backend, "name", value)).status is GetStatus.UNKNOWN
        buckets.delete("name")
        assert (await read(backend, "name", value)).status is GetStatus.MISS
        buckets.server.clear_log()
        for _ in range(3):
            assert statuses(await backend.stat_many(["name"])) == [GetStatus.MISS]
            assert (await read(backend, "name", value)).status is GetStatus.MISS
        assert not [entry for entry in buckets.server.log if entry["path"].startswith("/cas/")]


async def test_a_value_that_another_process_replaced_is_asked_about_anew(buckets: Buckets) -> None:
    async with opened(buckets, metadata_ttl_s=3600) as backend:
        await write(backend, ("name", b"old"))
        buckets.put("name", b"newer")
        assert (await read(backend, "name", b"old")).status is GetStatus.HIT  # a snapshot, whole
        assert (await read(backend, "name", b"newer")).status is GetStatus.HIT


async def test_what_never_ends_well_is_unknown_and_no_short_value_passes(buckets: Buckets) -> None:
    value = content("value", 100_000)
    async with opened(buckets) as backend:
        await write(backend, ("name", value))
        for fault in (
            hub.Fault(path="/cas/data/", truncate_bytes=100),
            hub.Fault(path="/cas/v2/reconstructions", status=401),
            hub.Fault(path="/cas/data/", drop=True),
        ):
            buckets.server.inject(fault)
            outcome = await read(backend, "name", value)
            assert outcome.status is GetStatus.UNKNOWN
            assert isinstance(outcome.error, TierUnavailableError)
            buckets.server.clear_faults()
        assert (await read(backend, "name", value)).status is GetStatus.HIT


async def test_wrong_bytes_are_the_checks_to_find(buckets: Buckets) -> None:
    value = content("value", 100_000)
    async with opened(buckets, compression="none") as backend:
        await write(backend, ("name", value))
        buckets.server.inject(hub.Fault(path="/cas/data/", corrupt_byte=5000))

        def answer(landed: bytes) -> GetStatus:
            return GetStatus.HIT if landed == value else GetStatus.CORRUPT

        landing = Landing("name", len(value), answer=answer)
        assert statuses(await backend.read_many([landing.request()])) == [GetStatus.CORRUPT]


async def test_a_transfer_that_hangs_keeps_its_memory_and_lets_others_through(
    buckets: Buckets,
) -> None:
    value = content("value", 100_000)
    buckets.put("hangs", value)
    async with opened(buckets, request_timeout_s=3.0, transfer_workers=2) as backend:
        await write(backend, ("other", b"value"))
        buckets.server.inject(hub.Fault(path="/cas/data/", hold=True, times=1))
        landing = Landing("hangs", len(value))

        async def arrival() -> None:
            while not buckets.server.harmed(_last_fault(buckets)):
                await checkpoint()

        await give_up(lambda: backend.read_many([landing.request()]), arrival)
        assert landing.is_lent
        assert (await read(backend, "other", b"value")).status is GetStatus.HIT
        with anyio.fail_after(PATIENCE_S):  # by its own timeouts: the server never lets go
            await backend.aclose()
        await landing.returned()
        assert landing.guards_hold
    buckets.server.release()


async def test_a_hub_that_hangs_is_given_up(buckets: Buckets) -> None:
    async with opened(buckets, request_timeout_s=0.2) as backend:
        buckets.server.inject(hub.Fault(path="paths-info$", hold=True))
        (outcome,) = await backend.stat_many(["name"])
        assert outcome.status is GetStatus.UNKNOWN
        assert isinstance(outcome.error, TierUnavailableError)
    buckets.server.release()


def _last_fault(buckets: Buckets) -> int:
    number = 0
    while True:
        try:
            buckets.server.harmed(number)
        except LookupError:
            return number - 1
        number += 1
