"""`tieredkv doctor`: what it measures, and what it finds, over real media, as a process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tieredkv.testing import hub
from tieredkv.testing.valkey import ValkeyServer

pytestmark = pytest.mark.network

Doctor: TypeAlias = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def doctor(
    tmp_path: Path,
    python: tuple[str, ...],
    hub_environment: dict[str, str],
) -> Doctor:
    def run(*tiers: dict[str, Any], l1: str = "1MiB", options: tuple[str, ...] = ()) -> Any:
        file = tmp_path / "tiers.json"
        file.write_text(json.dumps({"l1": l1, "l2": tiers}))
        done = subprocess.run(
            [*python, "-m", "tieredkv", "doctor", "--config", str(file), "--json", *options],
            env=hub_environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def texts(document: dict[str, Any]) -> list[str]:
    return [f"{f['severity']}: {f['tier']}: {f['text']}" for f in document["findings"]]


def test_tiers_that_are_well_are_measured_and_left_as_they_were(
    doctor: Doctor, server: ValkeyServer, local_hub: hub.LocalHub, tmp_path: Path
) -> None:
    bucket = {
        "type": "hfbucket",
        "handle": "hf://buckets/local/well",
        "endpoint": local_hub.endpoint,
        "create_bucket": True,
    }
    disk = {"type": "disk", "path": str(tmp_path / "disk")}
    valkey = {"type": "valkey", "address": server.url}
    status, document, _ = doctor(disk, valkey, bucket)
    assert (status, texts(document)) == (0, [])
    assert [tier["tier"] for tier in document["tiers"]] == ["disk", "valkey", "hfbucket"]
    for tier in document["tiers"]:
        assert tier["times_s"].keys() == {"open", "stat", "write", "read", "delete"}
        assert all(duration > 0 for duration in tier["times_s"].values())
    assert document["tiers"][2]["details"]["user"] == "local"
    assert document["tiers"][2]["details"]["bucket_is_private"] is True
    assert server.command("DBSIZE") == 0


def test_limits_and_two_who_evict_are_found(doctor: Doctor, server: ValkeyServer) -> None:
    server.command("CONFIG", "SET", "maxmemory", "50000000", "maxmemory-policy", "allkeys-lru")
    server.command("CONFIG", "SET", "proto-max-bulk-len", str(2**20))
    spec = {"type": "valkey", "address": server.url, "capacity": "10MiB"}
    status, document, _ = doctor(spec)
    limit, evictors = texts(document)
    assert status == 0
    assert limit.startswith("warning: valkey: proto-max-bulk-len is 1 MiB: larger values, up to 10")
    assert evictors.startswith("warning: valkey: two parties evict: ")


def test_a_missing_right_is_an_error_with_its_remedy(doctor: Doctor, server: ValkeyServer) -> None:
    server.command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+@connection")
    spec = {"type": "valkey", "address": server.url, "user": "reader", "password": "pw"}
    status, document, err = doctor(spec)
    assert status == 1
    (error,) = texts(document)
    assert error.startswith("error: valkey: write: the ACL user lacks a right: grant +get ")
    assert "pw" not in json.dumps(document) + err
    status, document, _ = doctor(spec, options=("--read-only",))
    assert (status, texts(document)) == (0, [])


def test_a_public_bucket_and_a_token_that_may_only_read_are_found(
    doctor: Doctor, local_hub: hub.LocalHub, environment: dict[str, str]
) -> None:
    spec = {
        "type": "hfbucket",
        "handle": "hf://buckets/local/public",
        "endpoint": local_hub.endpoint,
        "create_bucket": True,
    }
    assert doctor(spec)[0] == 0  # it creates the bucket
    local_hub.set_private("local/public", is_private=False)
    environment["HF_TOKEN"] = local_hub.add_token("guest", can_write=False)
    status, document, _ = doctor(spec)
    assert status == 1
    found = texts(document)
    assert any("HTTP 403" in text and text.startswith("error: ") for text in found)
    assert any("the token of guest may only read" in text for text in found)
    assert sum("is public" in text for text in found) == 1


def test_a_tier_that_is_not_there_is_an_error_and_the_others_are_measured(
    doctor: Doctor, server: ValkeyServer, tmp_path: Path
) -> None:
    server.kill()
    disk = {"type": "disk", "path": str(tmp_path / "disk")}
    status, document, _ = doctor({"type": "valkey", "address": server.url}, disk)
    assert status == 1
    assert document["tiers"][0]["times_s"] == {}
    assert "read" in document["tiers"][1]["times_s"]
    (error,) = texts(document)
    assert error.startswith("error: valkey: open: there is no connection (")
    assert "\n" not in error


def test_more_l1_than_there_is_memory_is_found(doctor: Doctor, tmp_path: Path) -> None:
    disk = {"type": "disk", "path": str(tmp_path / "disk")}
    status, document, _ = doctor(disk, l1="4TiB")
    assert status in {0, 1}
    assert any(": lower l1.capacity" in text for text in texts(document))


def test_people_get_lines(tieredkv: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(f'l1 = "1MiB"\nl2 = [{{ type = "disk", path = "{tmp_path / "disk"}" }}]\n')
    status, out, err = tieredkv("doctor", "--config", str(file))
    assert (status, err) == (0, "")
    assert out.startswith("disk (DiskBackend): open ")
    assert out.endswith("Nothing is wrong.\n")
