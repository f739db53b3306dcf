"""`tieredkv config`: checks a file, and tells what it comes to."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tieredkv import TieredStore
from tieredkv.loading import load

Run: TypeAlias = Callable[..., tuple[int, str, str]]

LEGACY = """
max_local_cpu_size: 2
chunk_size: 256
remote_storage_plugins: [hfbucket.us]
remote_url: "valkey://cache.example:6379"
extra_config:
  valkey_password: hunter2
  valkey_num_workers: 16
  remote_storage_plugin.hfbucket.us.bucket_handle: "hf://buckets/my-org/kv/us"
  remote_storage_plugin.hfbucket.us.token_env: US_TOKEN
"""


@pytest.fixture(autouse=True)
def environment_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("US_TOKEN", "hf_hunter2")
    monkeypatch.setenv("DIR", "/fast")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_an_explanation_says_where_each_value_is_from(tieredkv: Run, write: Any) -> None:
    status, out, err = tieredkv("config", "--explain", write("lmcache.yaml", LEGACY))
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "# no effect: chunk_size",
        "[l1]",
        "capacity = 2147483648 # from max_local_cpu_size, 2 GiB",
        "# max_age_s is not set # default",
        "[[l2]]",
        'type = "valkey" # given',
        'address = "valkey://cache.example:6379" # from remote_url',
        "# password is set # from extra_config.valkey_password",
        "num_workers = 16 # from extra_config.valkey_num_workers",
        (
            'handle = "hf://buckets/my-org/kv/us" '
            "# from extra_config.remote_storage_plugin.hfbucket.us.bucket_handle"
        ),
        "# token is set # environment, variable US_TOKEN",
        "fail_open = true # default",
    ):
        assert line in lines
    assert "hunter2" not in out


def test_an_explanation_is_the_same_configuration(tieredkv: Run, write: Any) -> None:
    source = {
        "l1": {"size_gb": 1, "eviction": {"eviction_policy": "LRU"}},
        "write_policy": {"type": "write_through", "require": "all"},
        "l2": [
            {"type": "fs", "base_path": '${DIR}/$${x}"\\ é\x7f', "max_capacity_gb": 0.5},
            {
                "type": "valkey",
                "startup_nodes": "a:1,b:2",
                "cluster_mode": True,
                "tls_enable": True,
                "tls": {"insecure": True},
                "password": "${DIR}",
            },
        ],
    }
    _, out, _ = tieredkv("config", "--explain", write("old.json", json.dumps(source)))
    before = load(source, TieredStore)
    after = load(tomllib.loads(out), TieredStore)
    assert [(s.path, s.value) for s in before.settings] == [
        (s.path, s.value) for s in after.settings
    ]
    assert after.unused == ()


def test_as_json_it_is_one_object(tieredkv: Run, write: Any) -> None:
    status, out, err = tieredkv("config", "--explain", "--json", write("old.yaml", LEGACY))
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert told["unused"] == ["chunk_size"]
    settings = {setting["path"]: setting for setting in told["settings"]}
    assert settings["l2[0].num_workers"] == {
        "path": "l2[0].num_workers",
        "value": 16,
        "origin": "given",
        "given_as": "extra_config.valkey_num_workers",
        "variables": [],
        "is_size": False,
    }
    assert "hunter2" not in out


def test_without_explanation_it_is_a_check(tieredkv: Run, write: Any) -> None:
    file = write("kv.toml", 'l1 = "4MiB"')
    assert tieredkv("config", file) == (0, f"# {file} works\n", "")


def test_what_a_backend_warns_of_is_told_too(tieredkv: Run, write: Any) -> None:
    file = write(
        "kv.json",
        '{"l1": "4MiB", "l2": [{"type": "valkey", "startup_nodes": "a:1,b:2", "ttl_seconds": 9,'
        ' "max_capacity_gb": 1, "eviction": {"eviction_policy": "LRU"}}]}',
    )
    status, out, err = tieredkv("config", file)
    assert (status, err) == (0, "")
    _, first, second = out.splitlines()
    assert first.startswith("# warning: l2[0]: max_capacity_gb and ttl_seconds are two eviction")
    assert second.startswith("# warning: mode='standalone' uses the first of 2 addresses")


def test_a_mistake_is_one_line_and_exit_status_2(tieredkv: Run, write: Any) -> None:
    file = write("kv.toml", 'l1 = "4MiB"\nl2 = [{type = "disk", path = "/kv", num_worker = 2}]')
    message = f"{file}: l2[0].num_worker is no field (did you mean 'num_workers'?)"
    assert tieredkv("config", "--explain", file) == (2, "", f"tieredkv: {message}\n")
    status, out, err = tieredkv("config", "--json", file + ".toml")
    assert (status, out) == (2, "")
    assert err == f"tieredkv: {file}.toml: cannot be read: No such file or directory\n"


def test_a_missing_package_is_exit_status_2(
    tieredkv: Run, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tieredkv.loading.yaml_files", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    status, out, err = tieredkv("config", write("kv.yaml", "l1: 4MiB"))
    assert (status, out) == (2, "")
    assert err.endswith("pip install 'tieredkv[yaml]'\n")
