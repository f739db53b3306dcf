"""Every fault does what it says, to the requests that it names."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from tieredkv.config import KiB
from tieredkv.errors import ConfigError
from tieredkv.testing import hub

BUCKET = "local/kv"
PATH = f"/api/buckets/{BUCKET}"
Ask = Callable[..., Any]

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("api")]


def add(*paths: str) -> bytes:
    """Return a batch that adds empty files."""
    line = '{{"type":"addFile","path":"{}","xetHash":"' + "0" * 64 + '","mtime":0}}\n'
    return "".join(line.format(path) for path in paths).encode()


def names(server: hub.LocalHub, ask: Ask) -> list[str]:
    return [item["path"] for item in ask(server, "GET", f"{PATH}/tree").json()]


class TestSchedule:
    def test_the_third_and_fourth_of_one_method(self, server: hub.LocalHub, ask: Ask) -> None:
        number = server.inject(hub.Fault(method="GET", path="/tree$", after=2, times=2, status=500))
        ask(server, "GET", PATH)
        found = [ask(server, "GET", f"{PATH}/tree").status for _ in range(6)]
        assert found == [200, 200, 500, 500, 200, 200]
        assert server.harmed(number) == 2
        assert [entry["fault"] for entry in server.log].count(number) == 2

    def test_the_first_that_fits(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/tree", times=1, status=502))
        server.inject(hub.Fault(status=503))
        found = [ask(server, "GET", f"{PATH}/tree").status for _ in range(2)]
        assert found == [502, 503]

    def test_until_cleared(self, server: hub.LocalHub, ask: Ask) -> None:
        number = server.inject(hub.Fault(status=500))
        assert ask(server, "GET", PATH).status == 500
        server.clear_faults()
        assert ask(server, "GET", PATH).status == 200
        assert server.harmed(number) == 1
        with pytest.raises(LookupError):
            server.harmed(number + 1)

    @pytest.mark.parametrize(
        "effects",
        [
            {"path": "("},
            {"failed": "["},
            {"status": 99},
            {"times": -1},
            {"delay_s": float("nan")},
            {"retry_after_s": True},
        ],
    )
    def test_what_cannot_be(self, effects: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(effects))):
            hub.Fault(**effects)


class TestAnswers:
    def test_headers(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(
            hub.Fault(status=429, retry_after_s=7, rate_limit_s=55, headers={"X-A": "b"}, body="no")
        )
        answer = ask(server, "GET", PATH)
        assert (answer.status, answer.body) == (429, b"no")
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["ratelimit"] == '"api";r=0;t=55'
        assert answer.headers["x-a"] == "b"

    def test_headers_alone_change_nothing_else(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(headers={"RateLimit": '"api";r=9;t=55'}))
        answer = ask(server, "GET", PATH)
        assert (answer.status, answer.json()["id"]) == (200, BUCKET)
        assert answer.headers["ratelimit"] == '"api";r=9;t=55'

    def test_the_client_sees_them(self, api: HfApi, server: hub.LocalHub) -> None:
        server.inject(hub.Fault(path=f"{PATH}$", status=429, rate_limit_s=55))
        with pytest.raises(HfHubHTTPError) as caught:
            api.bucket_info(BUCKET)
        assert caught.value.response.status_code == 429
        assert caught.value.response.headers["RateLimit"] == '"api";r=0;t=55'

    def test_a_body_without_end(self, server: hub.LocalHub) -> None:
        server.inject(hub.Fault(status=200, body="abc", repeat=True))
        connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"))
        connection.request("GET", PATH)
        answer = connection.getresponse()
        assert answer.read(3_000_000) == b"abc" * 1_000_000
        answer.close()
        connection.close()


class TestConnections:
    @pytest.mark.parametrize("carried_out", [False, True])
    def test_drop(self, server: hub.LocalHub, ask: Ask, *, carried_out: bool) -> None:
        server.inject(hub.Fault(path="/batch", times=1, drop=True, carried_out=carried_out))
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "POST", f"{PATH}/batch", add("key"))
        assert server.log[-1]["status"] == 0
        assert names(server, ask) == (["key"] if carried_out else [])

    def test_a_gateway_that_gives_up_too_early(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/batch", times=1, status=504, carried_out=True))
        assert ask(server, "POST", f"{PATH}/batch", add("key")).status == 504
        assert names(server, ask) == ["key"]

    def test_truncate(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(truncate_bytes=5))
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(server, "GET", PATH)
        assert len(caught.value.partial) == 5

    def test_hold_and_release(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/tree", hold=True))
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(ask(server, "GET", f"{PATH}/tree"))
        )
        waiting.start()
        server.wait_for_request("GET", "/tree$")
        assert server.log[-1]["status"] == 0
        assert ask(server, "GET", PATH).status == 200
        server.release()
        waiting.join()
        assert [answer.status for answer in answers] == [200]

    @pytest.mark.parametrize("effect", [{"hold": True}, {"delay_s": 3600.0}])
    def test_stopping_does_not_wait(
        self, server: hub.LocalHub, ask: Ask, effect: dict[str, Any]
    ) -> None:
        server.inject(hub.Fault(**effect))
        errors: list[BaseException] = []

        def hang() -> None:
            try:
                ask(server, "GET", PATH)
            except (ConnectionError, http.client.HTTPException) as error:
                errors.append(error)

        waiting = threading.Thread(target=hang)
        server.clear_log()
        waiting.start()
        server.wait_for_request()
        server.stop()
        waiting.join()

    def test_delay_ends(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(delay_s=0.001))
        assert ask(server, "GET", PATH).status == 200


class TestBatches:
    def test_some_fail(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/batch$", failed="^b"))
        answer = ask(server, "POST", f"{PATH}/batch", add("a", "b1", "b2", "cb"))
        assert answer.status == 200
        report = answer.json()
        assert (report["success"], report["processed"], report["succeeded"]) == (False, 4, 2)
        assert [failure["path"] for failure in report["failed"]] == ["b1", "b2"]
        assert names(server, ask) == ["a", "cb"]

    def test_all_fail(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/batch$", failed=""))
        answer = ask(server, "POST", f"{PATH}/batch", add("a", "b"))
        assert (answer.status, len(answer.json()["failed"])) == (422, 2)
        assert names(server, ask) == []

    @pytest.mark.parametrize("status", [200, 422])
    def test_with_a_status_of_choice(self, server: hub.LocalHub, ask: Ask, status: int) -> None:
        server.inject(hub.Fault(path="/batch$", failed="^b$", status=status))
        answer = ask(server, "POST", f"{PATH}/batch", add("a", "b"))
        assert (answer.status, answer.json()["succeeded"]) == (status, 1)
        assert names(server, ask) == ["a"]

    def test_some_fail_and_nobody_hears_of_it(self, server: hub.LocalHub, ask: Ask) -> None:
        server.inject(hub.Fault(path="/batch$", failed="^b$", drop=True))
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "POST", f"{PATH}/batch", add("a", "b"))
        assert names(server, ask) == ["a"]

    def test_the_client_reports_a_total_failure(self, api: HfApi, server: hub.LocalHub) -> None:
        server.inject(hub.Fault(path="/batch$", failed=""))
        with pytest.raises(HfHubHTTPError) as caught:
            api.batch_bucket_files(BUCKET, add=[(os.urandom(9), "key")])
        assert caught.value.response.status_code == 422
        assert caught.value.response.json()["failed"][0]["path"] == "key"


class TestContents:
    @pytest.fixture
    def value(self, api: HfApi) -> bytes:
        value = os.urandom(100 * KiB)
        api.batch_bucket_files(BUCKET, add=[(value, "key")])
        return value

    @pytest.fixture
    def load(self, api: HfApi, tmp_path: Path) -> Callable[[], bytes]:
        def read() -> bytes:
            api.download_bucket_files(BUCKET, [("key", tmp_path / "key")])
            return (tmp_path / "key").read_bytes()

        return read

    def test_corruption_passes_the_client_unnoticed(
        self, server: hub.LocalHub, value: bytes, load: Callable[[], bytes]
    ) -> None:
        server.inject(hub.Fault(path="^/cas/data/", corrupt_byte=-1))
        assert load() == value[:-1] + bytes([value[-1] ^ 0xFF])
        server.clear_faults()
        assert load() == value

    def test_a_byte_that_is_not_there_is_not_corrupted(
        self, server: hub.LocalHub, value: bytes, load: Callable[[], bytes]
    ) -> None:
        number = server.inject(hub.Fault(path="^/cas/data/", corrupt_byte=10**9))
        assert load() == value
        assert server.harmed(number) > 0

    def test_a_token_that_ended_early(
        self, server: hub.LocalHub, value: bytes, load: Callable[[], bytes]
    ) -> None:
        number = server.inject(hub.Fault(path="^/cas/v2/reconstructions", status=401))
        with pytest.raises((OSError, RuntimeError)):
            load()
        assert server.harmed(number) >= 1
        server.clear_faults()
        assert load() == value

    def test_a_range_that_is_ignored(
        self, api: HfApi, server: hub.LocalHub, value: bytes, ask: Ask
    ) -> None:
        (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
        token = ask(server, "GET", f"{PATH}/xet-read-token").json()["accessToken"]
        plan = ask(server, "GET", f"/cas/v2/reconstructions/{info.xet_hash}", token=token).json()
        (xorb,) = plan["xorbs"]
        some = {"Range": "bytes=1-2"}
        part = ask(server, "GET", f"/cas/data/{xorb}", headers=some)
        server.inject(hub.Fault(path="^/cas/data/", ignore_range=True))
        whole = ask(server, "GET", f"/cas/data/{xorb}", headers=some)
        assert (part.status, whole.status) == (206, 200)
        assert part.body == whole.body[1:3]

    def test_contents_that_are_gone(
        self, api: HfApi, server: hub.LocalHub, value: bytes, ask: Ask
    ) -> None:
        (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
        assert info.size == len(value)
        path = f"/cas/v2/reconstructions/{info.xet_hash}"
        token = ask(server, "GET", f"{PATH}/xet-read-token").json()["accessToken"]
        (xorb,) = ask(server, "GET", path, token=token).json()["xorbs"]
        (server.settings.root / "cas" / "xorbs" / xorb).unlink()
        assert ask(server, "GET", f"/cas/data/{xorb}").status == 404
        with hub.start(server.settings.root) as again:
            token = ask(again, "GET", f"{PATH}/xet-read-token").json()["accessToken"]
            assert ask(again, "GET", path, token=token).status == 404
