"""Who may do what: owners, others, readers, the anonymous, tokens that have ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import BucketNotFoundError, HfHubHTTPError

from tieredkv.testing import hub

pytestmark = pytest.mark.network

BUCKET = "local/kv"
PATH = f"/api/buckets/{BUCKET}"
Client = Callable[..., HfApi]
Ask = Callable[..., Any]


def status_of(call: Callable[[], object]) -> int:
    with pytest.raises(HfHubHTTPError) as caught:
        call()
    status: int = caught.value.response.status_code
    return status


class TestVisibility:
    def test_everybody_reads_a_public_bucket(
        self, api: HfApi, server: hub.LocalHub, client: Client
    ) -> None:
        api.batch_bucket_files(BUCKET, add=[(b"", "key")])
        for token in (server.add_token("bob"), False):
            other = client(server, token)
            assert [item.path for item in other.list_bucket_tree(BUCKET)] == ["key"]
            assert [bucket.id for bucket in other.list_buckets("local")] == [BUCKET]

    def test_nobody_else_sees_a_private_bucket(
        self, api: HfApi, server: hub.LocalHub, client: Client
    ) -> None:
        server.set_private(BUCKET, is_private=True)
        assert api.bucket_info(BUCKET).private
        bob, nobody = client(server, server.add_token("bob")), client(server, False)
        with pytest.raises(BucketNotFoundError):
            bob.bucket_info(BUCKET)
        assert status_of(lambda: nobody.bucket_info(BUCKET)) == 401
        assert list(bob.list_buckets("local")) == list(nobody.list_buckets("local")) == []

    def test_only_owners_write(
        self, api: HfApi, server: hub.LocalHub, client: Client, ask: Ask
    ) -> None:
        bob = client(server, server.add_token("bob"))
        bob.create_bucket("bob/own")
        assert status_of(lambda: bob.create_bucket("local/more")) == 403
        assert status_of(lambda: bob.delete_bucket(BUCKET)) == 403
        assert ask(server, "GET", f"{PATH}/xet-write-token", token=bob.token).status == 403
        assert ask(server, "GET", f"{PATH}/xet-write-token", token="").status == 401
        assert api.bucket_info("bob/own").id == "bob/own"

    def test_nobody_copies_from_what_they_cannot_read(
        self, api: HfApi, server: hub.LocalHub, ask: Ask
    ) -> None:
        api.batch_bucket_files(BUCKET, add=[(os.urandom(20), "key")])
        (source,) = api.get_bucket_paths_info(BUCKET, ["key"])
        server.set_private(BUCKET, is_private=True)
        bob = server.add_token("bob")
        ask(server, "POST", "/api/buckets/bob/own", {}, token=bob)
        copy = {"type": "copyFile", "path": "stolen", "xetHash": source.xet_hash, "mtime": 0}
        copy |= {"sourceRepoType": "bucket", "sourceRepoId": BUCKET}
        answer = ask(server, "POST", "/api/buckets/bob/own/batch", copy, token=bob)
        assert (answer.status, answer.json()["failed"][0]["path"]) == (422, "stolen")


class TestAccessTokens:
    def test_a_reader_may_not_write(
        self, api: HfApi, server: hub.LocalHub, client: Client, ask: Ask
    ) -> None:
        reader = client(server, server.add_token("local", can_write=False))
        assert reader.bucket_info(BUCKET).id == api.bucket_info(BUCKET).id
        assert status_of(lambda: reader.batch_bucket_files(BUCKET, delete=["key"])) == 403
        assert ask(server, "GET", f"{PATH}/xet-read-token", token=reader.token).status == 200
        assert ask(server, "GET", f"{PATH}/xet-write-token", token=reader.token).status == 403

    def test_rotation_ends_the_old_token(
        self, api: HfApi, server: hub.LocalHub, client: Client
    ) -> None:
        new = server.rotate_token()
        assert new == server.token != api.token
        assert status_of(lambda: api.bucket_info(BUCKET)) == 401
        assert client(server).bucket_info(BUCKET).id == BUCKET
        assert server.rotate_token() != new

    def test_a_revoked_token_is_not_anonymous(
        self, api: HfApi, server: hub.LocalHub, client: Client
    ) -> None:
        bob = server.add_token("bob")
        server.revoke_token(bob)
        assert status_of(lambda: client(server, bob).bucket_info(BUCKET)) == 401
        server.revoke_token(server.token)
        with pytest.raises(LookupError):
            server.rotate_token()

    def test_the_log_knows_who_asked(
        self, api: HfApi, server: hub.LocalHub, client: Client, ask: Ask
    ) -> None:
        server.clear_log()
        api.whoami()
        client(server, server.add_token("bob")).whoami()
        ask(server, "GET", PATH, token="")
        ask(server, "GET", PATH, token="hf_wrong")
        assert [entry["user"] for entry in server.log] == ["local", "bob", "", "?"]
        assert [entry["status"] for entry in server.log] == [200, 200, 200, 401]


class TestXetTokens:
    def test_the_cas_takes_no_other(self, api: HfApi, server: hub.LocalHub, ask: Ask) -> None:
        path = f"/cas/v2/reconstructions/{'0' * 64}"
        read = ask(server, "GET", f"{PATH}/xet-read-token").json()["accessToken"]
        assert ask(server, "GET", path).status == 401
        assert ask(server, "GET", path, token=read).status == 200
        assert ask(server, "POST", "/cas/v2/shards", b"x", token=read).status == 403
        assert api.token not in read

    def test_a_token_ends_when_it_says(self, api: HfApi, server: hub.LocalHub, ask: Ask) -> None:
        assert api.token == server.token
        server.set_xet_token_ttl(0)
        answer = ask(server, "GET", f"{PATH}/xet-read-token")
        ended = answer.json()["accessToken"]
        assert answer.headers["x-xet-access-token"] == ended
        assert ask(server, "GET", f"/cas/v2/reconstructions/{'0' * 64}", token=ended).status == 401

    def test_or_before(self, api: HfApi, server: hub.LocalHub, ask: Ask) -> None:
        assert api.token == server.token
        read = ask(server, "GET", f"{PATH}/xet-read-token").json()["accessToken"]
        server.expire_xet_tokens()
        assert ask(server, "GET", f"/cas/v2/reconstructions/{'0' * 64}", token=read).status == 401
