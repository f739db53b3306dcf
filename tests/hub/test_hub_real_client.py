"""The unmodified client works against every kind of local Hub."""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import BucketNotFoundError, HfHubHTTPError, RemoteEntryNotFoundError

from tieredkv.config import KiB, MiB
from tieredkv.testing import hub

hf_xet: Any = importlib.import_module("hf_xet")  # it has no types

pytestmark = pytest.mark.network

BUCKET = "local/kv"
Client = Callable[..., HfApi]


@pytest.fixture
def any_api(any_server: hub.LocalHub, client: Client) -> HfApi:
    api = client(any_server)
    api.create_bucket(BUCKET)
    return api


def paths(api: HfApi, prefix: str | None = None, *, recursive: bool = True) -> list[str]:
    return [item.path for item in api.list_bucket_tree(BUCKET, prefix, recursive=recursive)]


def download(api: HfApi, directory: Path, *names: str) -> list[bytes]:
    targets = [directory / f"file-{index}" for index in range(len(names))]
    api.download_bucket_files(BUCKET, list(zip(names, targets, strict=True)))
    return [target.read_bytes() for target in targets]


def upload(api: HfApi, **values: bytes) -> None:
    api.batch_bucket_files(BUCKET, add=[(value, name) for name, value in values.items()])


class TestBuckets:
    def test_a_new_bucket_is_public_and_empty(self, any_api: HfApi) -> None:
        info = any_api.bucket_info(BUCKET)
        assert (info.id, info.private, info.size, info.total_files) == (BUCKET, False, 0, 0)

    def test_private_on_request(self, any_api: HfApi) -> None:
        any_api.create_bucket("local/secret", private=True)
        assert any_api.bucket_info("local/secret").private

    def test_own_namespace_by_default(self, any_api: HfApi) -> None:
        assert any_api.create_bucket("short").bucket_id == "local/short"

    def test_twice_is_a_conflict_unless_allowed(self, any_api: HfApi) -> None:
        assert any_api.create_bucket(BUCKET, exist_ok=True).bucket_id == BUCKET
        with pytest.raises(HfHubHTTPError) as caught:
            any_api.create_bucket(BUCKET)
        assert caught.value.response.status_code == 409

    def test_delete(self, any_api: HfApi) -> None:
        any_api.delete_bucket(BUCKET)
        any_api.delete_bucket(BUCKET, missing_ok=True)
        with pytest.raises(BucketNotFoundError):
            any_api.delete_bucket(BUCKET)
        with pytest.raises(BucketNotFoundError):
            any_api.bucket_info(BUCKET)

    def test_list_by_namespace(self, any_api: HfApi) -> None:
        any_api.create_bucket("acme/kv")
        assert [bucket.id for bucket in any_api.list_buckets()] == [BUCKET]
        assert [bucket.id for bucket in any_api.list_buckets("acme")] == ["acme/kv"]


class TestValues:
    @pytest.mark.parametrize("size", [0, 1, 64 * KiB, 3 * MiB + 1])
    def test_bytes_come_back(self, any_api: HfApi, tmp_path: Path, size: int) -> None:
        value = os.urandom(size)
        upload(any_api, key=value)
        assert download(any_api, tmp_path, "key") == [value]
        (info,) = any_api.get_bucket_paths_info(BUCKET, ["key", "absent"])
        assert (info.path, info.size) == ("key", size)
        assert any_api.bucket_info(BUCKET).size == size

    def test_files_come_back(self, any_api: HfApi, tmp_path: Path) -> None:
        source = tmp_path / "source.bin"
        source.write_bytes(os.urandom(200 * KiB))
        any_api.batch_bucket_files(BUCKET, add=[(source, "a.bin"), (str(source), "b.bin")])
        assert download(any_api, tmp_path, "a.bin", "b.bin") == [source.read_bytes()] * 2

    def test_overwriting(self, any_api: HfApi, tmp_path: Path) -> None:
        upload(any_api, key=os.urandom(10))
        upload(any_api, key=(new := os.urandom(20)))
        assert download(any_api, tmp_path, "key") == [new]
        assert any_api.bucket_info(BUCKET).total_files == 1

    def test_values_that_share_chunks(self, any_api: HfApi, tmp_path: Path) -> None:
        one, two = os.urandom(MiB), os.urandom(MiB)
        values = {"a": one, "b": two, "c": one + two, "d": two + one + two, "e": one * 3}
        upload(any_api, **values)
        assert download(any_api, tmp_path, *values) == list(values.values())

    def test_values_that_compress(self, any_api: HfApi, tmp_path: Path) -> None:
        value = os.urandom(8).hex().encode() * 50_000
        upload(any_api, key=value)
        assert download(any_api, tmp_path, "key") == [value]

    def test_names_are_any_text(self, any_api: HfApi, tmp_path: Path) -> None:
        names = ["a b", "a%2Fb", "a/b//c", "ü/é", "e\u0301", "🗝", "?#&+", "x" * 300, "@00ff", "\\"]
        values = [os.urandom(16) for _ in names]
        any_api.batch_bucket_files(BUCKET, add=list(zip(values, names, strict=True)))
        assert sorted(paths(any_api)) == sorted(names)
        assert download(any_api, tmp_path, *names) == values
        for name in names:
            assert any_api.get_bucket_file_metadata(BUCKET, name).size == 16

    def test_delete(self, any_api: HfApi) -> None:
        upload(any_api, a=os.urandom(9), b=os.urandom(9))
        any_api.batch_bucket_files(BUCKET, delete=["a", "absent"])
        assert paths(any_api) == ["b"]
        with pytest.raises(RemoteEntryNotFoundError):
            any_api.get_bucket_file_metadata(BUCKET, "a")

    def test_many_writers(self, any_server: hub.LocalHub, any_api: HfApi, tmp_path: Path) -> None:
        values = {f"key-{index}": os.urandom(50 * KiB) for index in range(8)}
        writers = [
            threading.Thread(target=upload, args=(any_api,), kwargs={name: value})
            for name, value in values.items()
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert download(any_api, tmp_path, *values) == list(values.values())
        assert not {entry["status"] for entry in any_server.log} & {0, 400, 401, 403, 500}


class TestListing:
    def test_flat_and_deep(self, any_api: HfApi) -> None:
        upload(any_api, **dict.fromkeys(("top", "d/one", "d/e/two", "d.json"), b""))
        assert paths(any_api) == ["d.json", "d/e/two", "d/one", "top"]
        assert paths(any_api, recursive=False) == ["d.json", "d", "top"]
        assert paths(any_api, "d/") == ["d/e/two", "d/one"]
        assert paths(any_api, "d", recursive=False) == ["d.json", "d/e", "d/one"]
        assert paths(any_api, "absent") == []

    def test_more_than_a_call_takes(self, any_api: HfApi, any_server: hub.LocalHub) -> None:
        names = [f"{index:04}" for index in range(1500)]
        any_api.batch_bucket_files(BUCKET, add=[(b"", name) for name in names])
        any_server.clear_log()
        assert paths(any_api) == names
        assert len(list(any_api.get_bucket_paths_info(BUCKET, names))) == len(names)
        any_api.batch_bucket_files(BUCKET, delete=names)
        assert paths(any_api) == []
        calls = [entry["path"].rpartition("/")[2] for entry in any_server.log]
        assert calls == ["tree"] * 2 + ["paths-info"] * 2 + ["batch"] * 2 + ["tree"]


def test_the_log_tells_hub_and_cas_apart(api: HfApi, server: hub.LocalHub) -> None:
    server.clear_log()
    api.batch_bucket_files(BUCKET, add=[(os.urandom(100), f"{index}") for index in range(300)])
    to_hub = [entry for entry in server.log if entry["path"].startswith("/api/")]
    assert {entry["path"].rpartition("/")[2] for entry in to_hub} == {"xet-write-token", "batch"}
    assert sum((entry["body"] or "").count("addFile") for entry in to_hub) == 300
    to_cas = {entry["path"].rpartition("/")[0] for entry in server.log} - {
        f"/api/buckets/{BUCKET}",
        "/v1",  # telemetry
    }
    assert "/cas/v1/xorbs/default" in to_cas
    assert all(path.startswith("/cas/") for path in to_cas)


def test_copying_by_request(api: HfApi, server: hub.LocalHub, ask: Callable[..., Any]) -> None:
    upload(api, key=os.urandom(50))
    (source,) = api.get_bucket_paths_info(BUCKET, ["key"])
    api.create_bucket("acme/other")
    copy = {
        "type": "copyFile",
        "path": "copied",
        "xetHash": source.xet_hash,
        "mtime": 0,
        "sourceRepoType": "bucket",
        "sourceRepoId": BUCKET,
    }
    ask(server, "POST", "/api/buckets/acme/other/batch", copy)
    (copied,) = api.get_bucket_paths_info("acme/other", ["copied"])
    assert (copied.path, copied.size, copied.xet_hash) == ("copied", 50, source.xet_hash)


def test_whatever_else_this_client_can(api: HfApi, tmp_path: Path) -> None:
    """Copying, moving and settings came after the first release with buckets."""
    upload(api, key=(value := os.urandom(50)))
    if "copy" in inspect.signature(api.batch_bucket_files).parameters:
        (source,) = api.get_bucket_paths_info(BUCKET, ["key"])
        api.batch_bucket_files(BUCKET, copy=[("bucket", BUCKET, source.xet_hash, "twin")])
        assert download(api, tmp_path, "twin") == [value]
    if hasattr(api, "copy_files"):
        api.copy_files(f"hf://buckets/{BUCKET}/key", f"hf://buckets/{BUCKET}/new/name")
        assert download(api, tmp_path, "new/name") == [value]
    if hasattr(api, "update_bucket_settings"):
        api.update_bucket_settings(BUCKET, private=True)
        assert api.bucket_info(BUCKET).private
    if hasattr(api, "move_bucket"):
        api.move_bucket(BUCKET, "acme/moved")
        assert api.bucket_info("acme/moved").total_files >= 1
        with pytest.raises(BucketNotFoundError):
            api.bucket_info(BUCKET)


def read_group(server: hub.LocalHub, bucket: str = BUCKET) -> Any:
    config = hf_xet.XetConfig().with_config(
        {
            "telemetry.enabled": False,
            "client.retry_max_attempts": 1,
            "client.retry_base_delay": "10ms",
        }
    )
    return hf_xet.XetSession(config).new_download_stream_group(
        token_refresh_url=f"{server.endpoint}/api/buckets/{bucket}/xet-read-token",
        token_refresh_headers={"Authorization": f"Bearer {server.token}"},
    )


def test_every_range_can_be_read(api: HfApi, server: hub.LocalHub) -> None:
    value = os.urandom(600 * KiB)
    upload(api, key=value)
    (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
    group = read_group(server)
    file = hf_xet.XetFileInfo(info.xet_hash, info.size)
    for start, end in [(0, 1), (1, 2), (99_999, 300_001), (599 * KiB, 600 * KiB)]:
        stream = group.download_stream(file, start=start, end=end)
        assert b"".join(stream) == value[start:end]


@pytest.mark.parametrize(
    "effect", [{"status": 503}, {"status": 403}, {"drop": True}, {"truncate_bytes": 100}]
)
def test_hf_xet_survives_one_bad_answer(
    api: HfApi, server: hub.LocalHub, effect: dict[str, Any]
) -> None:
    value = os.urandom(100 * KiB)
    upload(api, key=value)
    (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
    number = server.inject(hub.Fault(path="^/cas/data/", times=1, **effect))
    stream = read_group(server).download_stream(hf_xet.XetFileInfo(info.xet_hash, info.size))
    assert b"".join(stream) == value
    assert server.harmed(number) == 1


def test_hf_xet_renews_a_token_that_ends_soon(api: HfApi, server: hub.LocalHub) -> None:
    value = os.urandom(100 * KiB)
    upload(api, key=value)
    (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
    server.set_xet_token_ttl(20)
    server.clear_log()
    stream = read_group(server).download_stream(hf_xet.XetFileInfo(info.xet_hash, info.size))
    assert b"".join(stream) == value
    server.wait_for_request("GET", "/xet-read-token$", count=2, timeout_s=0)


def test_what_has_been_overwritten_can_still_be_read_by_its_hash(
    api: HfApi, server: hub.LocalHub
) -> None:
    value = os.urandom(100 * KiB)
    upload(api, key=value)
    (info,) = api.get_bucket_paths_info(BUCKET, ["key"])
    upload(api, key=b"")
    stream = read_group(server).download_stream(hf_xet.XetFileInfo(info.xet_hash, info.size))
    assert b"".join(stream) == value
