"""How often the Hub is asked, and what it is told."""

from __future__ import annotations

import json
import logging
import threading
import time

import anyio
import pytest

import tieredkv
from tests.hfbucket.calls import hub_requests, opened, read, statuses, write
from tests.hfbucket.media import Buckets, RawClient
from tieredkv.errors import TierError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus
from tieredkv.testing import hub
from tieredkv.testing.backends.requests import Landing
from tieredkv.testing.content import content

pytestmark = [pytest.mark.anyio, pytest.mark.network]

VALUES = [(f"name-{number}", content(number, 3000)) for number in range(32)]


async def _read_all(buckets: Buckets, backend: object) -> None:
    landings = [Landing(name, len(value)) for name, value in VALUES]
    outcomes = await backend.read_many([landing.request() for landing in landings])  # type: ignore[attr-defined]
    assert statuses(outcomes) == [GetStatus.HIT] * 32
    assert [landing.value for landing in landings] == [value for _, value in VALUES]


async def test_a_batch_takes_one_request_and_a_known_one_none(buckets: Buckets) -> None:
    server = buckets.server
    async with opened(buckets) as backend:
        server.clear_log()
        await write(backend, *VALUES)
        assert hub_requests(server) == [("POST", "batch")]
        server.clear_log()
        await _read_all(buckets, backend)
        assert (await backend.stat_many([name for name, _ in VALUES]))[0].stored_bytes == 3000
        assert hub_requests(server) == []
    async with opened(buckets) as backend:
        server.clear_log()
        await _read_all(buckets, backend)
        assert hub_requests(server) == [("POST", "paths-info")]
        server.clear_log()
        await _read_all(buckets, backend)
        assert hub_requests(server) == []
        assert not [entry for entry in server.log if entry["path"].endswith("-token")]


async def test_lookups_of_many_tasks_share_requests(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.clear_log()
        async with anyio.create_task_group() as tasks:
            for number in range(2000):
                tasks.start_soon(backend.stat_many, [f"absent-{number}"])
        assert hub_requests(buckets.server) == [("POST", "paths-info")] * 2


async def test_fifty_callers_share_one_token(buckets: Buckets) -> None:
    buckets.put("name", b"value")
    async with opened(buckets) as backend:
        buckets.server.clear_log()
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(read, backend, "name", b"value")
        assert len([e for e in buckets.server.log if e["path"].endswith("read-token")]) == 1


@pytest.mark.parametrize("ahead_s", [5 * 3600, -5 * 3600])
async def test_a_wrong_clock_costs_no_token_for_each_call(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    async with opened(buckets, metadata_ttl_s=0) as backend:
        buckets.server.clear_log()
        await write(backend, *VALUES[:2])
        for name, value in VALUES[:2] * 2:
            assert (await read(backend, name, value)).status is GetStatus.HIT
    tokens = [entry["path"].rpartition("/")[2] for entry in buckets.server.log]
    assert tokens.count("xet-read-token") == tokens.count("xet-write-token") == 1


async def test_nothing_is_told_to_telemetry_and_we_say_who_we_are(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        buckets.server.clear_log()
        await write(backend, *VALUES)
        await backend.delete_many(["name-0"])
    log = buckets.server.log
    assert not [entry for entry in log if "telemetry" in entry["path"]]
    assert not [entry for entry in log if entry["path"].startswith("/cas/v1/chunks")]
    assert all(f"tieredkv/{tieredkv.__version__}" in entry["user_agent"] for entry in log)


async def test_a_bucket_that_is_missing_is_empty_and_not_created(
    server: hub.LocalHub, raw_client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    buckets = Buckets(server, raw_client, is_created=False)
    with caplog.at_level(logging.WARNING, "tieredkv"):
        async with opened(buckets) as backend:
            assert (await read(backend, "name", b"value")).status is GetStatus.MISS
            assert statuses(await backend.stat_many(["name"])) == [GetStatus.MISS]
            assert statuses(await backend.delete_many(["name"])) == [DeleteStatus.ABSENT]
            assert [entry async for entry in backend.list_names()] == []
            (written,) = await write(backend, ("name", b"value"))
            assert written.status is PutStatus.FAILED
            assert "create_bucket=True" in str(written.error)
    assert "create_bucket=True" in caplog.text
    assert buckets.call("info") is None


async def test_ten_first_puts_create_one_private_bucket(
    server: hub.LocalHub, raw_client: RawClient
) -> None:
    buckets = Buckets(server, raw_client, is_created=False)
    async with opened(buckets, create_bucket=True) as backend:
        assert (await read(backend, "name", b"value")).status is GetStatus.MISS
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(write, backend, (f"name-{number}", b"value"))
        assert statuses(await backend.stat_many(["name-0", "name-9"])) == [GetStatus.HIT] * 2
    bodies = [
        json.loads(entry["body"] or "")
        for entry in server.log
        if entry["method"] == "POST" and entry["path"] == f"/api/buckets/{buckets.id}"
    ]
    assert bodies == [{"visibility": "private"}]
    assert buckets.call("info") is True


async def test_a_failed_creation_is_tried_again(
    server: hub.LocalHub, raw_client: RawClient
) -> None:
    buckets = Buckets(server, raw_client, is_created=False)
    server.inject(hub.Fault(method="POST", path=f"{buckets.id}$", status=400, times=1))
    async with opened(buckets, create_bucket=True, private=False) as backend:
        assert statuses(await write(backend, ("name", b"value"))) == [PutStatus.FAILED]
        assert statuses(await write(backend, ("name", b"value"))) == [PutStatus.STORED]
    assert buckets.call("info") is False


async def test_a_public_bucket_is_warned_of(
    buckets: Buckets, caplog: pytest.LogCaptureFixture
) -> None:
    buckets.server.set_private(buckets.id, is_private=False)
    async with opened(buckets):
        assert "is public" in caplog.text
    caplog.clear()
    async with opened(buckets, private=False):
        assert not caplog.text


async def test_anonymous_is_nobody_whoever_is_logged_in(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", buckets.server.token)
    buckets.put("name", b"value")
    buckets.server.set_private(buckets.id, is_private=False)
    buckets.server.clear_log()
    async with opened(buckets, token=False, private=False) as backend:
        assert (await read(backend, "name", b"value")).status is GetStatus.HIT
        assert statuses(await write(backend, ("name", b"other"))) == [PutStatus.FAILED]
    assert {entry["user"] for entry in buckets.server.log} == {""}


async def test_a_wrong_token_is_told_at_opening(buckets: Buckets) -> None:
    backend = buckets.backend(token="hf_wrong")
    with pytest.raises(TierError, match=r"401.*check the token") as raised:
        await backend.open()
    assert "hf_wrong" not in str(raised.value)
    await backend.aclose()


async def test_a_token_that_was_replaced_in_the_environment_is_found(
    buckets: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = buckets.server
    first, second = (server.add_token("local") for _ in range(2))
    monkeypatch.setenv("HF_EU_TOKEN", first)
    async with opened(buckets, token=None, token_env="HF_EU_TOKEN") as backend:
        await write(backend, ("name", b"value"))
        server.revoke_token(first)
        assert statuses(await backend.stat_many(["other"])) == [GetStatus.UNKNOWN]
        assert not (await backend.status()).is_healthy
        monkeypatch.setenv("HF_EU_TOKEN", second)
        assert statuses(await backend.stat_many(["other"])) == [GetStatus.MISS]
        assert (await backend.status()).is_healthy


async def test_usage_follows_what_this_process_stores(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        await write(backend, ("a", bytes(1000)), ("b", b""))
        await write(backend, ("a", bytes(400)))
        details = (await backend.status()).details
        assert (details["stored_object_count"], details["current_size_bytes"]) == (2, 400)
        assert (details["max_capacity_bytes"], details["usage_fraction"]) == (0, -1.0)
        await backend.delete_many(["a", "b", "absent"])
        details = (await backend.status()).details
        assert (details["stored_object_count"], details["current_size_bytes"]) == (0, 0)


async def test_over_capacity_the_least_recently_used_go(buckets: Buckets) -> None:
    async with opened(buckets, capacity=1000) as backend:
        for name in "abc":
            await write(backend, (name, bytes(300)))
        await read(backend, "a", bytes(300))
        await write(backend, ("d", bytes(300)))
        assert [buckets.get(name) is not None for name in "abcd"] == [True, False, True, True]
        assert (await backend.status()).details["usage_fraction"] == 0.9
        (outcome,) = await write(backend, ("huge", bytes(1001)))
        assert (outcome.status, outcome.reason) == (PutStatus.REJECTED, "too_large")


async def test_the_vendors_global_client_is_left_alone(buckets: Buckets) -> None:
    import huggingface_hub.utils._http as vendor

    before = vendor._GLOBAL_CLIENT, vendor._GLOBAL_ASYNC_CLIENT_FACTORY, threading.active_count()
    async with opened(buckets) as backend:
        await write(backend, ("name", b"value"))
    assert before[:2] == (vendor._GLOBAL_CLIENT, vendor._GLOBAL_ASYNC_CLIENT_FACTORY)
