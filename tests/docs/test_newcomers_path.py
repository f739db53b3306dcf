"""Who follows the pages from a configuration to a copied and verified tier, gets there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.docs.examples import DOCS, ROOT
from tieredkv.testing.hub import LocalHub
from tieredkv.testing.valkey import ValkeyServer

PAGE = DOCS / "how-to/command-line.md"


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(maxmemory=64 << 20, policy="allkeys-lfu") as running:
        yield running


@pytest.mark.network
def test_configure_examine_put_copy_and_verify(
    server: ValkeyServer, bucket_host: LocalHub, tmp_path: Path
) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    for there, here in {
        "4GiB": "64MiB",
        "200GiB": "100MiB",
        "/var/cache/kv": str(tmp_path / "kv"),
        "valkey://127.0.0.1:6379": server.url,
        "buckets/my-org/kv/": f"buckets/local/kv-{uuid4().hex}/",
    }.items():
        assert there in text
        text = text.replace(there, here)
    file = tmp_path / "tiers.toml"
    file.write_text(text)
    value = tmp_path / "value.bin"
    content = os.urandom(1 << 20)
    value.write_bytes(content)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TIEREDKV_CONFIG": str(file),
        "HF_TOKEN": bucket_host.token,
        "HF_ENDPOINT": bucket_host.endpoint,
    }

    def tieredkv(*words: str) -> Any:
        command = [sys.executable, "-m", "tieredkv", *words, "--json"]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return json.loads(ended.stdout)

    tieredkv("config", str(file))
    tieredkv("doctor")
    tieredkv("put", "--tier", "disk", "chunk", str(value))
    tieredkv("copy", "disk", "cold")
    tieredkv("verify", "--tier", "cold")
    value.unlink()
    tieredkv("get", "--tier", "cold", "chunk", "-o", str(value))
    is_the_same = value.read_bytes() == content
    assert is_the_same
