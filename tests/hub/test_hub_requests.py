"""Requests that the real client does not send, or of which it hides the answer."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from huggingface_hub import HfApi

from tieredkv.testing import hub

PATH = "/api/buckets/local/kv"
Ask = Callable[..., Any]

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("api")]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{PATH}/paths-info", b"{"),
        ("POST", f"{PATH}/paths-info", b"[]"),
        ("POST", f"{PATH}/paths-info", {"paths": "key"}),
        ("POST", f"{PATH}/paths-info", {"paths": ["key"] * 1001}),
        ("POST", f"{PATH}/batch", b"{}\n{"),
        ("POST", f"{PATH}/batch", b"1\n"),
        ("POST", f"{PATH}/batch", b'{"type":"deleteFile","path":"key"}\n' * 1001),
        ("POST", "/api/buckets/local/new", {"visibility": "hidden"}),
        ("POST", "/api/buckets/local/%20", {}),
        ("PUT", f"{PATH}/settings", {"private": "yes"}),
        ("POST", "/api/repos/move", {"type": "model", "fromRepo": "a/b", "toRepo": "a/c"}),
    ],
)
def test_malformed_requests(
    server: hub.LocalHub, ask: Ask, method: str, path: str, body: object
) -> None:
    answer = ask(server, method, path, body)
    assert answer.status == 400
    assert answer.headers["x-error-message"] == answer.json()["error"]


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ({"type": "addFile", "path": "key", "xetHash": "ab" * 32, "mtime": 0}, "not found"),
        ({"type": "addFile", "path": "key", "xetHash": "../../etc", "mtime": 0}, "not found"),
        ({"type": "addFile", "path": "key", "mtime": 0}, "not found"),
        ({"type": "addFile", "path": "key", "xetHash": "0" * 64, "mtime": "now"}, "mtime"),
        ({"type": "addFile", "path": "/key", "xetHash": "0" * 64, "mtime": 0}, "path"),
        ({"type": "addFile", "path": "", "xetHash": "0" * 64, "mtime": 0}, "path"),
        ({"type": "addFile", "path": 1, "xetHash": "0" * 64, "mtime": 0}, "path"),
        ({"type": "renameFile", "path": "key"}, "renameFile"),
        ({"type": "copyFile", "path": "key", "xetHash": "0" * 64}, "source"),
    ],
)
def test_operations_that_fail_alone(
    server: hub.LocalHub, ask: Ask, operation: dict[str, object], error: str
) -> None:
    alone = ask(server, "POST", f"{PATH}/batch", operation)
    assert alone.status == 422
    good = {"type": "addFile", "path": "good", "xetHash": "0" * 64, "mtime": 0}
    lines = "\n".join(json.dumps(line) for line in (good, operation)).encode()
    report = ask(server, "POST", f"{PATH}/batch", lines)
    assert report.status == 200
    (failure,) = report.json().pop("failed")
    assert failure["path"] == operation["path"]
    assert error in failure["error"]
    assert (report.json()["processed"], report.json()["succeeded"]) == (2, 1)


def test_unknown_routes_and_files(server: hub.LocalHub, ask: Ask) -> None:
    assert ask(server, "GET", "/api/models").status == 404
    assert ask(server, "GET", f"/cas/v2/reconstructions/{'1' * 64}").status == 401
    assert ask(server, "GET", f"/cas/data/{'1' * 64}").status == 404
    assert ask(server, "GET", "/cas/data/../buckets.ndjson").status == 404
    assert ask(server, "POST", "/v1/telemetry", b"x").status == 200
    missing = ask(server, "HEAD", "/buckets/local/kv/resolve/absent")
    assert (missing.status, missing.headers["x-error-code"]) == (404, "EntryNotFound")


def test_the_cas_refuses_what_is_not_whole(server: hub.LocalHub, ask: Ask) -> None:
    write = ask(server, "GET", f"{PATH}/xet-write-token").json()["accessToken"]
    assert ask(server, "POST", "/cas/v2/shards", b"no shard", token=write).status == 400
    xorb = f"/cas/v1/xorbs/default/{'1' * 64}"
    assert ask(server, "POST", xorb, b"\0\xff\0\0\0\xff\0\0", token=write).status == 400


def test_pages_of_buckets(api: HfApi, server: hub.LocalHub, ask: Ask) -> None:
    with hub.start(page_size=2) as small:
        for name in "edcba":
            ask(small, "POST", f"/api/buckets/local/{name}", {})
        small_api = HfApi(endpoint=small.endpoint, token=small.token)
        small_api.batch_bucket_files("local/a", add=[(b"", f"d/{n}") for n in range(5)])
        found = [bucket.id for bucket in small_api.list_buckets()]
        paths = [item.path for item in small_api.list_bucket_tree("local/a", recursive=True)]
    assert found == [f"local/{name}" for name in "abcde"]
    assert paths == [f"d/{n}" for n in range(5)]
    (bucket,) = ask(server, "GET", "/api/buckets/local?search=k").json()
    assert bucket["id"] == api.bucket_info("local/kv").id
    assert ask(server, "GET", "/api/buckets/local?search=zz").json() == []


def test_a_body_in_chunks_counts_like_any_other(server: hub.LocalHub) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
    pieces = (piece for piece in (b'{"paths":', b'["key"]}'))
    headers = {"Authorization": f"Bearer {server.token}"}
    connection.request("POST", f"{PATH}/paths-info", pieces, headers, encode_chunked=True)
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"[]")
    connection.close()


def test_half_a_request_is_none(server: hub.LocalHub) -> None:
    server.clear_log()
    host, port = urlsplit(server.endpoint).netloc.split(":")
    for half in (b"Content-Length: 99\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n4\r\n{"):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"POST /api/repos/move HTTP/1.1\r\n" + half)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert server.log == []


def test_the_log(server: hub.LocalHub, ask: Ask) -> None:
    server.clear_log()
    ask(server, "POST", f"{PATH}/paths-info?x=1", {"paths": []}, headers={"User-Agent": "me"})
    assert server.log == [
        {
            "method": "POST",
            "path": f"{PATH}/paths-info",
            "query": "x=1",
            "status": 200,
            "user": "local",
            "user_agent": "me",
            "body": '{"paths": []}',
            "request_bytes": 13,
            "response_bytes": 2,
            "fault": None,
        }
    ]
    server.wait_for_request("POST", "paths-info$")
    with pytest.raises(TimeoutError):
        server.wait_for_request("POST", "paths-info$", count=2, timeout_s=0)


def test_addresses_in_answers_are_those_by_which_the_client_came(
    server: hub.LocalHub, ask: Ask
) -> None:
    grant = ask(server, "GET", f"{PATH}/xet-read-token", headers={"Host": "hub.example:81"})
    assert grant.json()["casUrl"] == "http://hub.example:81/cas"
    assert ask(server, "GET", f"{PATH}/xet-read-token").json()["casUrl"] == f"{server.endpoint}/cas"
