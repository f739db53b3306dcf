"""A Hub that lies: no wrong byte, no memory without bound, no call without end, no token astray."""

from __future__ import annotations

import gzip
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
import pytest

from tests.hfbucket.calls import opened, statuses, write
from tests.hfbucket.elsewhere import Elsewhere
from tests.hfbucket.media import Buckets, RawClient
from tests.store.inside import inside
from tieredkv import DeleteStatus, GetStatus, PutStatus, TieredStore
from tieredkv.backends import HFBucketBackend
from tieredkv.clients.hub_answers import Listing, grant_of
from tieredkv.clients.hub_failures import HubError
from tieredkv.clients.retries import Retries
from tieredkv.config import KiB, MiB
from tieredkv.errors import TierError
from tieredkv.testing import hub
from tieredkv.testing.content import content, gist
from tieredkv.testing.leaks import LeakCheck

pytestmark = [pytest.mark.anyio, pytest.mark.network]

VALUES: Final = {key: content(key, 20 * KiB) for key in ("a", "b")}
STORED_BYTES: Final = 20 * KiB + 64

NO_JSON: Final = {
    "nothing": "",
    "a page": "<html>",
    "half": '[{"type": "file"',
    "lists in lists": "[" * 100_000,
    "a number of many digits": "9" * 5000,
    "no text": '"\\ud800"',
}
NO_LISTING: Final = {"a table": "{}", "a text": '"x"', "a number": "1", "null": "null"}
ENTRIES: Final[dict[str, dict[str, Any]]] = {
    "less than there is": {"size": STORED_BYTES - 1},
    "more than there is": {"size": STORED_BYTES + 1},
    "no bytes": {"size": 0},
    "a trailer and no more": {"size": 64},
    "fewer than none": {"size": -5},
    "more than any disk": {"size": 2**62},
    "more than a machine counts": {"size": 10**30},
    "a truth for a size": {"size": True},
    "a fraction for a size": {"size": 1.5},
    "a text for a size": {"size": str(STORED_BYTES)},
    "null for a size": {"size": None},
    "no hash": {"xetHash": None},
    "another hash": {"xetHash": "0" * 64},
    "a path for a hash": {"xetHash": "../../etc/passwd"},
    "a number for a path": {"path": 5},
    "null for a path": {"path": None},
}
GRANTS: Final[dict[str, dict[str, Any]]] = {
    "no address": {"casUrl": None},
    "a list for an address": {"casUrl": []},
    "a file": {"casUrl": "file:///etc"},
    "words": {"casUrl": "somewhere"},
    "no host": {"casUrl": "http://"},
    "half an address": {"casUrl": "http://[::1"},
    "a blank host": {"casUrl": "http://a b/\n"},
    "no token": {"accessToken": 5},
    "a truth for a time": {"exp": True},
    "a text for a time": {"exp": "soon"},
    "a time before all": {"exp": -1},
    "a time that is over": {"exp": 0},
    "a time after all": {"exp": 10**18},
    "a time of many digits": {"exp": 10**400},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def store_over(buckets: Buckets) -> AsyncIterator[TieredStore]:
    """A store whose values are in the bucket alone, and that has asked nothing yet."""
    backend = buckets.backend(request_timeout_s=0.3, metadata_ttl_s=0)
    async with TieredStore("1MiB", [backend]) as store:
        yield store


@pytest.fixture
def filled(buckets: Buckets) -> Iterator[Buckets]:
    """The bucket, with values in it."""

    async def fill() -> None:
        async with TieredStore("1MiB", [buckets.backend()]) as store:
            assert all(result.ok for result in await store.put_many(VALUES.items()))

    anyio.run(fill)
    yield buckets
    buckets.server.clear_faults()


@contextmanager
def answering(buckets: Buckets, path: str, body: str, **effects: Any) -> Iterator[None]:
    """Let requests to a path have an answer."""
    buckets.server.inject(hub.Fault(path=path, status=200, body=body, **effects))
    yield
    buckets.server.clear_faults()


async def outcomes(store: TieredStore) -> set[GetStatus]:
    """Read all values; return what became of it, after a look at every byte."""
    seen: set[GetStatus] = set()
    for sizes in (None, [20 * KiB] * len(VALUES)):
        with anyio.fail_after(25):
            results = await store.get_many(VALUES, sizes=sizes)
        with results:
            for result in results:
                seen.add(result.status)
                if result.object is not None:
                    assert gist(bytes(result.object)) == gist(VALUES[str(result.key)])
        inside(store).l1.clear()
        inside(store).tiers[0].health.succeeded("another try")
    return seen


@pytest.fixture(autouse=True)
def _no_defect(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever the Hub says, it is no surprise."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# -- answers that are none -----------------------------------------------------------------------


async def test_an_answer_that_is_no_listing_is_a_failure_and_no_miss(filled: Buckets) -> None:
    async with store_over(filled) as store:
        for body in (NO_JSON | NO_LISTING).values():
            with answering(filled, "paths-info$", body):
                assert await outcomes(store) == {GetStatus.UNKNOWN}, body[:40]
        assert await outcomes(store) == {GetStatus.HIT}


async def test_a_listing_that_lies_brings_no_wrong_byte(filled: Buckets) -> None:
    async with store_over(filled) as store:
        await store.exists_many(VALUES)
        true = {path: await _entry(store, path) for path in map(Buckets.path, VALUES)}
        for lie in ENTRIES.values():
            entries = [{**entry, **lie} for entry in true.values()]
            with answering(filled, "paths-info$", json.dumps(entries)):
                assert GetStatus.HIT not in await outcomes(store), lie
        others = dict(zip(true, reversed(true.values()), strict=True))
        swapped = [{**entry, "path": path} for path, entry in others.items()]
        with answering(filled, "paths-info$", json.dumps(swapped)):
            assert await outcomes(store) == {GetStatus.CORRUPT}
        doubled = [*true.values(), *true.values(), {"type": "file"} | true[Buckets.path("a")]]
        with answering(filled, "paths-info$", json.dumps(doubled)):
            assert await outcomes(store) <= {GetStatus.HIT, GetStatus.MISS}


async def _entry(store: TieredStore, path: str) -> dict[str, Any]:
    """Return what the Hub tells of a file."""
    backend = inside(store).tiers[0].backend
    assert isinstance(backend, HFBucketBackend)
    assert backend._bucket is not None
    info = (await backend._bucket.hub.paths_info([path]))[path]
    return {"type": "file", "path": path, "size": info.size, "xetHash": info.hash}


async def test_a_grant_that_is_none_is_a_failure(filled: Buckets) -> None:
    for lie in GRANTS.values():
        grant = {"accessToken": "t", "exp": 2_000_000_000, "casUrl": "http://127.0.0.1:9"} | lie
        async with store_over(filled) as store:
            with answering(filled, "-token$", json.dumps(grant)):
                assert await outcomes(store) == {GetStatus.UNKNOWN}, lie
                result = await store.put("c", b"value")
                assert result.tiers["hfbucket"].status is PutStatus.FAILED, lie


@pytest.mark.parametrize(
    ("endpoint", "cas_url"),
    [
        ("https://huggingface.co", "http://cas.example"),
        ("https://huggingface.co", "local:///tmp/somewhere"),
        ("http://hub.example", "local:///tmp/somewhere"),
        ("http://127.0.0.1:80", "file:///tmp/somewhere"),
    ],
)
def test_contents_go_nowhere_with_less_protection_than_the_hub_has(
    endpoint: str, cas_url: str
) -> None:
    with pytest.raises(HubError, match="elsewhere"):
        grant_of({"accessToken": "t", "exp": 1, "casUrl": cas_url}, endpoint)


@pytest.mark.parametrize(
    "body",
    ["[]", "null", "<html>", '{"failed": 5}', '{"failed": [5]}', '{"failed": [{"path": 1}]}'],
)
@pytest.mark.parametrize("is_done", [False, True])
async def test_only_what_is_there_is_stored_whatever_a_batch_is_told(
    buckets: Buckets, body: str, *, is_done: bool
) -> None:
    async with opened(buckets) as backend:
        with answering(buckets, "/batch$", body, carried_out=is_done):
            expected = PutStatus.STORED if is_done else PutStatus.UNKNOWN
            assert statuses(await write(backend, ("name", b"value"))) == [expected]
        await write(backend, ("name", b"value"))
        with answering(buckets, "/batch$", body, carried_out=is_done):
            gone = DeleteStatus.DELETED if is_done else DeleteStatus.UNKNOWN
            assert statuses(await backend.delete_many(["name"])) == [gone]


async def test_who_we_are_may_be_any_answer(buckets: Buckets) -> None:
    async with opened(buckets) as backend:
        answers: list[object] = [None, [], "x", {"accessToken": []}, {"accessToken": {"role": 5}}]
        for auth in answers:
            with answering(buckets, "whoami", json.dumps({"name": "me", "auth": auth})):
                assert (await backend.access()).role == ""


# -- answers without end -------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_answer_without_end_is_given_up_and_takes_little_memory(
    filled: Buckets, status: int
) -> None:
    async with store_over(filled) as store:
        filled.server.inject(
            hub.Fault(path="paths-info$", status=status, body="[" + " " * 65_535, repeat=True)
        )
        tracemalloc.start()
        try:
            assert await outcomes(store) == {GetStatus.UNKNOWN}
            assert tracemalloc.get_traced_memory()[1] < 64 * MiB
        finally:
            tracemalloc.stop()


async def test_an_answer_that_unpacks_without_end_is_given_up(buckets: Buckets) -> None:
    bomb = gzip.compress(b"[" + bytes(40 * MiB))
    for packing in ("gzip", "gzip, gzip", "br", "zstd"):
        with Elsewhere(bomb, {"Content-Encoding": packing}) as hostile:
            async with opened(buckets) as backend:
                assert backend._bucket is not None
                backend._bucket.hub._endpoint = hostile.endpoint
                (outcome,) = await backend.stat_many(["name"])
                assert outcome.status is GetStatus.UNKNOWN
                assert isinstance(outcome.error, TierError)


@pytest.mark.parametrize("path", ["/cas/data/", "/cas/v2/reconstructions"])
async def test_nobody_waits_for_a_content_without_end(raw_client: RawClient, path: str) -> None:
    """hf_xet takes it in until the server hangs up, in a worker of its own."""
    with LeakCheck(leases=False), hub.start() as server:
        backend = Buckets(server, raw_client).backend()
        async with TieredStore("1MiB", [backend]) as store:
            assert (await store.put("a", VALUES["a"])).ok
            backend.deadline_s = 0.2
            inside(store).l1.clear()
            # Of contents these are headers of chunks that are empty.
            server.inject(hub.Fault(path=path, status=200, body="\0", repeat=True))
            (result,) = await store.get_many(["a"], sizes=[20 * KiB])
            assert result.status is GetStatus.UNKNOWN
            assert "no answer within 0.2 s" in str(result.error)
            server.stop()


async def test_ranges_that_are_ignored_bring_no_wrong_byte(filled: Buckets) -> None:
    async with store_over(filled) as store:
        filled.server.inject(hub.Fault(path="/cas/data/", ignore_range=True))
        await outcomes(store)


# -- listings ------------------------------------------------------------------------------------


async def test_only_names_of_ours_are_listed_and_cleared(filled: Buckets) -> None:
    entry = {"type": "file", "size": 5, "xetHash": "0" * 64}
    strange = ("prod/../a", "/prod/a", "/etc/passwd", "prod/a\nb", "prod//a", "prod/", "other/a")
    paths = [*strange, "prod/%61", "prod/a%0", "prod/\0", "..", "", "prod/a", "prod/a", "prod/b"]
    body = json.dumps([{**entry, "path": path} for path in paths])
    async with store_over(filled) as store:
        with answering(filled, "/tree", body):
            assert {key async for key in store.keys("hfbucket")} == {"a", "b"}
            assert await store.clear(tiers=["hfbucket"], dry_run=True) == {"hfbucket": 2}
            assert await store.clear(tiers=["hfbucket"]) == {"hfbucket": 2}


@pytest.mark.parametrize(
    "address",
    ["{tree}?cursor=x", "{tree}", "http://[::1", "http://elsewhere/", "{tree}?" + "x" * 70_000],
)
async def test_a_listing_that_goes_in_a_circle_or_elsewhere_breaks_off(
    filled: Buckets, address: str
) -> None:
    tree = f"{filled.server.endpoint}/api/buckets/{filled.id}/tree/prod"
    async with store_over(filled) as store:
        link = {"Link": f'<{address.format(tree=tree)}>; rel="next"'}
        filled.server.inject(hub.Fault(path="/tree", headers=link))
        with anyio.fail_after(20), pytest.raises(TierError):
            assert {key async for key in store.keys("hfbucket")} <= set(VALUES)


def test_pages_with_nothing_in_them_do_not_go_on_and_on() -> None:
    listing = Listing()
    for number in range(100):
        listing.turn(f"page {number}", is_empty=True)
    with pytest.raises(HubError, match="come to its end"):
        listing.turn("page 100", is_empty=True)


# -- secrets, pauses -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_elsewhere_is_not_followed(filled: Buckets, status: int) -> None:
    with Elsewhere() as elsewhere:
        async with store_over(filled) as store:
            location = {"Location": f"{elsewhere.endpoint}/api"}
            for path in ("paths-info$", "/tree", "-token$", "/batch$"):
                filled.server.inject(hub.Fault(path=path, status=status, headers=location))
            assert await outcomes(store) == {GetStatus.UNKNOWN}
            assert not (await store.put("c", b"value")).ok
            with pytest.raises(TierError, match="another server"):
                assert [key async for key in store.keys("hfbucket")] == []
    assert elsewhere.requests == []


async def test_a_redirect_within_the_hub_is_followed_but_not_for_ever(filled: Buckets) -> None:
    async with store_over(filled) as store:
        location = {"Location": f"/api/buckets/{filled.id}/paths-info"}
        filled.server.inject(
            hub.Fault(path="paths-info$", status=307, headers=location, times=1),
        )
        assert await outcomes(store) == {GetStatus.HIT}
        filled.server.inject(hub.Fault(path="paths-info$", status=307, headers=location))
        assert await outcomes(store) == {GetStatus.UNKNOWN}


async def test_access_to_contents_is_not_redirected_with_its_token(filled: Buckets) -> None:
    with Elsewhere(b"{}") as elsewhere:
        async with store_over(filled) as store:
            location = {"Location": f"{elsewhere.endpoint}/cas"}
            for path in ("/cas/v2/reconstructions", "/cas/v1/xorbs", "/cas/v2/shards"):
                filled.server.inject(hub.Fault(path=path, status=307, headers=location))
            await outcomes(store)
            await store.put("c", b"value")
    assert not any("authorization" in request.lower() for request in elsewhere.requests)


async def test_a_token_that_the_hub_repeats_is_not_told(
    filled: Buckets, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = filled.server.token
    body = "x" * 280 + token  # which may be cut short there
    said: list[str] = []
    async with store_over(filled) as store:
        for status in (400, 401, 403, 404, 503):
            for text in ({"X-Error-Message": f"what is {token}?"}, {}):
                filled.server.inject(
                    hub.Fault(
                        path="paths-info$|/batch$",
                        status=status,
                        headers=text,
                        body=body,
                    )
                )
                (result,) = await store.get_many(["a"])
                put = await store.put("c", b"value")
                said += [repr(result.error), str(result.error), repr(put)]
                said.append(repr(await store.status()))
                filled.server.clear_faults()
                inside(store).tiers[0].health.succeeded("another try")
    said += [record.getMessage() for record in caplog.records if record.name.startswith("tieredkv")]
    assert not any(token[:20] in text for text in said)


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "9" * 400},
        {"retry-after": "9" * 5000},
        {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"},
        {"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"},
        {"retry-after": "-5"},
        {"ratelimit": f'"api";r=0;t={"9" * 5000}'},
        {"ratelimit": f'"api";r={"0" * 5000};t=9'},
    ],
)
def test_no_pause_is_for_good(headers: dict[str, str]) -> None:
    retries = Retries()
    retries.heed(headers)
    assert 0 <= retries.pause_s <= 600
