"""The examples of every page work, and print what the page says."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.docs.examples import DOCS, ROOT, examples, run
from tieredkv.testing.hub import LocalHub
from tieredkv.testing.valkey import ValkeyCluster

pytestmark = pytest.mark.anyio

README: Final = ROOT / "README.md"
CLUSTER: Final = DOCS / "how-to/valkey-cluster.md"
BUCKET: Final = DOCS / "how-to/hf-cold-tier.md"
PRIVATE_CA: Final = DOCS / "how-to/private-ca.md"  # tested where servers with TLS are
METRICS: Final = DOCS / "reference/metrics.md"  # tested in a process of its own
ELSEWHERE: Final = {CLUSTER, BUCKET, PRIVATE_CA, METRICS}

# What a page takes for granted, and what stands for its places and sizes.
GIVEN: Final[Mapping[Path, dict[str, Any]]] = {
    README: {"digest": b"0123", "chunk": bytes(100_000), "keys": [], "use": len},
}
PLACES: Final[Mapping[Path, dict[str, str]]] = {
    README: {"/var/cache/kv": "{tmp_path}"},
    DOCS / "how-to/one-machine.md": {"/var/cache/kv": "{tmp_path}", "4GiB": "64MiB"},
}
PAGES: Final = [
    page
    for page in [README, *sorted(DOCS.rglob("*.md"))]
    if page not in ELSEWHERE and examples(page.read_text())
]


@pytest.fixture(autouse=True)
def temporary_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_they_work(page: Path, tmp_path: Path) -> None:
    here = {there: place.format(tmp_path=tmp_path) for there, place in PLACES.get(page, {}).items()}
    await run(page, dict(GIVEN.get(page, {})), here)


@pytest.mark.network
async def test_they_work_in_a_cluster_with_just_the_rights_named(
    cluster: ValkeyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = re.search(r"^ACL SETUSER .*$", CLUSTER.read_text(), re.MULTILINE)
    assert rights is not None
    for node in cluster.nodes:
        node.command(*rights[0].replace("PASSWORD", "secret").split())
    monkeypatch.setenv("VALKEY_PASSWORD", "secret")
    places = [f"valkey://cache-{number}.example:6379" for number in (1, 2)]
    await run(CLUSTER, {}, dict(zip(places, cluster.urls, strict=False)))


@pytest.mark.network
async def test_they_work_with_a_bucket(bucket_host: LocalHub, tmp_path: Path) -> None:
    handle = f'"hf://buckets/local/kv-{uuid4().hex}"'
    here = {
        '"hf://buckets/my-org/kv/prod",': f"{handle}, endpoint={bucket_host.endpoint!r}, "
        f"token={bucket_host.token!r},",
        "/var/cache/kv": str(tmp_path),
    }
    await run(BUCKET, {}, here)
