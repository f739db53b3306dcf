"""Adapter specifications of LMCache's multi-process mode, taken as they are."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.loading.effective import effective, given, loaded
from tieredkv import TieredStore
from tieredkv.config import GiB
from tieredkv.errors import ConfigError
from tieredkv.loading import load

BUCKET = {"type": "hfbucket", "bucket_handle": "hf://buckets/my-org/lmcache-kv/prod"}
VALKEY = {"type": "valkey", "startup_nodes": "127.0.0.1:6379"}
DISK = {"type": "fs", "base_path": "/data/kv"}
LRU = {"eviction_policy": "LRU"}


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (BUCKET, {"handle": "hf://buckets/my-org/lmcache-kv/prod"}),
        (
            {**BUCKET, "create_bucket_if_missing": True, "num_workers": 8},
            {
                "handle": "hf://buckets/my-org/lmcache-kv/prod",
                "create_bucket": True,
                "num_workers": 8,
            },
        ),
        (
            {
                **BUCKET,
                "token_env": "HF_TOKEN",
                "create_bucket_if_missing": False,
                "download_tmp_dir": "/tmp/lmcache-hfbucket-mp",
                "metadata_cache_ttl_secs": 30,
                "num_workers": 4,
                "max_capacity_gb": 500,
                "eviction": {**LRU, "trigger_watermark": 0.85, "eviction_ratio": 0.2},
            },
            {
                "handle": "hf://buckets/my-org/lmcache-kv/prod",
                "token_env": "HF_TOKEN",
                "create_bucket": False,
                "metadata_ttl_s": 30,
                "num_workers": 4,
                "capacity": 500 * GiB,
            },
        ),
        (VALKEY, {"address": ["valkey://127.0.0.1:6379"]}),
        (
            {
                "type": "valkey",
                "cluster_mode": True,
                "startup_nodes": "seed1.example.com:6379, seed2.example.com:6379,",
                "username": "lmcache",
                "password": "secret",
                "tls_enable": True,
                "num_workers": 16,
            },
            {
                "mode": "cluster",
                "address": ["valkeys://seed1.example.com:6379", "valkeys://seed2.example.com:6379"],
                "user": "lmcache",
                "password": "…",
                "num_workers": 16,
            },
        ),
        (
            {
                "type": "valkey",
                "cluster_mode": True,
                "startup_nodes": "10.0.0.1:6379,10.0.0.2:6379",
                "max_capacity_gb": 512,
                "eviction": LRU,
                "num_workers": 16,
            },
            {
                "mode": "cluster",
                "address": ["valkey://10.0.0.1:6379", "valkey://10.0.0.2:6379"],
                "capacity": 512 * GiB,
                "num_workers": 16,
            },
        ),
        (
            {**VALKEY, "ttl_seconds": 3600},
            {"address": ["valkey://127.0.0.1:6379"], "ttl_s": 3600},
        ),
        (
            {
                "type": "valkey",
                "startup_nodes": "[::1]:6379",
                "cluster_mode": False,
                "key_prefix": "prod",
                "database_id": 3,
                "request_timeout": 2.5,
                "connection_timeout": 1,
            },
            {
                "address": ["valkey://[::1]:6379"],
                "mode": "standalone",
                "key_prefix": "prod",
                "db": 3,
                "request_timeout_s": 2.5,
                "connect_timeout_s": 1,
            },
        ),
        (DISK, {"path": "/data/kv"}),
        (
            {**DISK, "max_capacity_gb": 0.5, "eviction": LRU},
            {"path": "/data/kv", "capacity": GiB // 2},
        ),
        ({**DISK, "max_capacity_gb": 0}, {"path": "/data/kv"}),
    ],
)
def test_it_comes_to_our_settings(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    told = given(loaded(spec))
    kind = {"fs": "disk"}.get(spec["type"], spec["type"])
    assert told == {f"l2[0].{name}": value for name, value in {"type": kind, **settings}.items()}


def test_the_defaults_are_lmcaches() -> None:
    told = effective(loaded(BUCKET, VALKEY))
    bucket = {"token_env": "HF_TOKEN", "create_bucket": False, "metadata_ttl_s": 30.0}
    valkey = {"mode": "standalone", "key_prefix": "", "num_workers": 8, "ttl_s": None}
    times = {"request_timeout_s": 5.0, "connect_timeout_s": 10.0}
    expected = {f"l2[0].{name}": value for name, value in {**bucket, "num_workers": 4}.items()}
    expected |= {f"l2[1].{name}": value for name, value in {**valkey, **times}.items()}
    assert expected.items() <= told.items()


def test_adapters_keep_their_order_and_get_names() -> None:
    told = effective(loaded(DISK, VALKEY, BUCKET, BUCKET))
    names = [told[f"l2[{n}].name"] for n in range(4)]
    assert names == ["disk", "valkey", "hfbucket", "hfbucket-2"]


def test_its_l1_comes_to_ours() -> None:
    configuration = load(
        {
            "l1": {
                "type": "dram",
                "tag": "_default",
                "size_gb": 2,
                "align_bytes": 8192,
                "eviction": {
                    "eviction_policy": "IsolatedLRU",
                    "trigger_watermark": 0.9,
                    "eviction_ratio": 0.1,
                },
                "read_ttl_seconds": 300,
                "write_ttl_seconds": 600,
            }
        },
        TieredStore,
    )
    told = effective(configuration)
    assert told["l1.capacity"] == 2 * GiB
    assert (told["l1.alignment_bytes"], told["l1.eviction_policy"]) == (8192, "isolated_lru")
    assert (told["l1.trigger_watermark"], told["l1.eviction_ratio"]) == (0.9, 0.1)
    assert configuration.unused == (
        "l1.type",
        "l1.tag",
        "l1.read_ttl_seconds",
        "l1.write_ttl_seconds",
    )


def test_null_is_absent_and_not_the_text_none() -> None:
    spec = {**VALKEY, "username": None, "password": None, "key_prefix": None, "eviction": None}
    assert given(loaded(spec)) == {
        "l2[0].type": "valkey",
        "l2[0].address": ["valkey://127.0.0.1:6379"],
        "l2[0].password": None,
    }


def test_what_has_no_effect_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    common = {
        "shared": True,
        "affinity_tag": "_default",
        "persist_enabled": True,
        "serde": None,
        "per_op_workers": {"lookup": 2},
    }
    specs = [
        {**BUCKET, **common, "token": "t", "token_env": "NO_SUCH", "download_tmp_dir": "/dev/shm"},
        {**DISK, "relative_tmp_dir": "t", "read_ahead_size": 4096, "use_odirect": True},
    ]
    with caplog.at_level(logging.INFO, "tieredkv.loading"):
        TieredStore.from_config({"l1": "4MiB", "l2": specs})
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "settings without effect: l2[0].shared, l2[0].affinity_tag, l2[0].persist_enabled, "
        "l2[0].per_op_workers, l2[0].download_tmp_dir, l2[1].relative_tmp_dir, "
        "l2[1].read_ahead_size, l2[1].use_odirect"
    )


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({**DISK, "max_capacity_gb": 5}, "l2[0].max_capacity_gb without an eviction object has no"),
        ({**DISK, "eviction": LRU}, "l2[0].eviction has no effect without a capacity above 0"),
        (
            {**DISK, "max_capacity_gb": 0, "eviction": LRU},
            "l2[0].eviction has no effect without a capacity above 0",
        ),
        (
            {**DISK, "max_capacity_gb": 5, "eviction": {"eviction_policy": "ARC"}},
            "l2[0].eviction.eviction_policy='ARC': this tier evicts what was used least recently",
        ),
        (
            {**VALKEY, "max_capacity_gb": 5, "eviction": LRU, "ttl_seconds": 60},
            "l2[0]: max_capacity_gb and ttl_seconds are two eviction authorities",
        ),
    ],
)
def test_another_effect_than_it_says_is_a_warning(spec: dict[str, Any], warning: str) -> None:
    (said,) = loaded(spec).warnings
    assert said.startswith(warning)


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({**VALKEY, "startup_nodes": "a:1,b:2"}, "uses the first of 2 addresses: a:1"),
        ({**VALKEY, "cluster_mode": True, "database_id": 3}, "db=3 has no meaning in a Cluster"),
    ],
)
def test_what_a_backend_does_not_use_is_a_warning(
    spec: dict[str, Any], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    loaded(spec)
    assert warning in caplog.text


@pytest.mark.parametrize(
    "eviction", [None, {"eviction_policy": "noop"}], ids=["no eviction", "noop"]
)
def test_a_capacity_evicts_only_with_an_eviction_policy(eviction: Any) -> None:
    told = effective(loaded({**DISK, "max_capacity_gb": 5, "eviction": eviction}))
    assert told["l2[0].capacity"] is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "hfbucket"}, "l2[0].handle is missing: it must be given"),
        ({**BUCKET, "bucket_handle": 5}, "l2[0].bucket_handle=5 must be a text"),
        ({**BUCKET, "bucket_handle": "s3://b"}, "l2[0].bucket_handle: handle='s3://b' must begin"),
        (
            {**BUCKET, "create_bucket_if_missing": "false"},
            "l2[0].create_bucket_if_missing='false' must be true or false",
        ),
        (
            {**BUCKET, "metadata_cache_ttl_secs": -1},
            "l2[0].metadata_cache_ttl_secs: metadata_ttl_s=-1 is outside 0 and up",
        ),
        (
            {**BUCKET, "metadata_cache_ttl_secs": float("nan")},
            "l2[0].metadata_cache_ttl_secs=nan must be finite",
        ),
        (
            {**BUCKET, "metadata_cache_ttl_secs": True},
            "l2[0].metadata_cache_ttl_secs=True must be a number",
        ),
        ({**BUCKET, "token_env": 5}, "l2[0].token_env=5 must be a text"),
        ({**BUCKET, "token": 5}, "l2[0].token must be a text or False"),
        ({**BUCKET, "num_workers": True}, "l2[0].num_workers=True must be a whole number"),
        ({**BUCKET, "num_workers": 0}, "l2[0].num_workers=0 is outside 1"),
        ({**BUCKET, "persist_enabled": "false"}, "l2[0].persist_enabled must be True, or left"),
        ({**BUCKET, "download_tmp_dir": ""}, "l2[0].download_tmp_dir must be a text that is not"),
        ({**BUCKET, "handle": "hf://buckets/o/b"}, "l2[0].handle and l2[0].bucket_handle are one"),
        ({**BUCKET, "max_capacity_gb": True}, "l2[0].max_capacity_gb=True must be a number"),
        ({**BUCKET, "max_capacity_gb": -1}, "l2[0].max_capacity_gb=-1 is outside 0 and up"),
        (
            {**BUCKET, "max_capcity_gb": 5},
            "l2[0].max_capcity_gb is no field (did you mean 'max_capacity_gb'?)",
        ),
        ({**BUCKET, "eviction": "LRU"}, "l2[0].eviction must be a mapping of fields, not a text"),
        ({**BUCKET, "eviction": {}}, "l2[0].eviction.eviction_policy is missing: it is one of LRU"),
        (
            {**BUCKET, "eviction": {"eviction_policy": "lru"}},
            (
                "l2[0].eviction.eviction_policy='lru' must be one of 'LRU', 'ARC', 'IsolatedLRU', "
                "'noop' (did you mean 'LRU'?)"
            ),
        ),
        (
            {**BUCKET, "eviction": {**LRU, "trigger_watermark": 80}},
            "l2[0].eviction.trigger_watermark=80 is outside 0..1",
        ),
        (
            {**BUCKET, "eviction": {**LRU, "eviction_ratio": float("nan")}},
            "l2[0].eviction.eviction_ratio=nan must be finite",
        ),
        (
            {**BUCKET, "eviction": {**LRU, "eviction_rate": 0.1}},
            "l2[0].eviction.eviction_rate is no field (did you mean 'eviction_ratio'?)",
        ),
        (
            {**BUCKET, "capacity": "1GiB", "eviction": {"eviction_policy": "noop"}},
            "l2[0].eviction.eviction_policy='noop' contradicts l2[0].capacity",
        ),
        ({**BUCKET, "shared": "false"}, "l2[0].shared='false' must be true or false"),
        (
            {**BUCKET, "persist_enabled": False},
            "l2[0].persist_enabled must be True, or left out: write_on='never' keeps a store",
        ),
        ({**BUCKET, "affinity_tag": "gpu"}, "l2[0].affinity_tag must be '_default', or left out"),
        ({**BUCKET, "serde": {"type": "x"}}, "l2[0].serde must be None, or left out: values are"),
        ({**BUCKET, "per_op_workers": {"load": 0}}, "l2[0].per_op_workers.load=0 is outside 1"),
        ({"type": "valkey"}, "l2[0].address is missing"),
        ({**VALKEY, "startup_nodes": ""}, "l2[0].startup_nodes must be a text that is not empty"),
        ({**VALKEY, "startup_nodes": " , "}, "l2[0].startup_nodes=' , ' names no server: 'host:p"),
        ({**VALKEY, "startup_nodes": ["h:1"]}, "l2[0].startup_nodes must be a text"),
        ({**VALKEY, "startup_nodes": "host"}, "l2[0].startup_nodes='host' must be 'host:port' or"),
        ({**VALKEY, "startup_nodes": "::1:6379"}, "l2[0].startup_nodes='::1:6379' must be"),
        ({**VALKEY, "startup_nodes": "u:p@h:1"}, "l2[0].startup_nodes must be 'host:port' or"),
        ({**VALKEY, "startup_nodes": "h:0"}, "l2[0].startup_nodes: the port=0 is outside 1..65535"),
        ({**VALKEY, "startup_nodes": "h:65536"}, "l2[0].startup_nodes: the port=65536 is outside"),
        ({**VALKEY, "cluster_mode": "false"}, "l2[0].cluster_mode='false' must be true or false"),
        ({**VALKEY, "tls_enable": 1}, "l2[0].tls_enable=1 must be true or false"),
        (
            {"type": "valkey", "address": "valkey://h", "tls_enable": True},
            "l2[0].tls_enable goes with startup_nodes: write valkeys:// in the",
        ),
        ({**VALKEY, "database_id": -1}, "l2[0].database_id: db=-1 is outside 0 and up"),
        ({**VALKEY, "database_id": True}, "l2[0].database_id=True must be a whole number"),
        ({**VALKEY, "username": "u"}, "l2[0].username: user='u' has no password: give password="),
        ({**VALKEY, "num_workers": True}, "l2[0].num_workers=True must be a whole number"),
        ({**VALKEY, "max_capacity_gb": False}, "l2[0].max_capacity_gb=False must be a number"),
        ({**VALKEY, "connection_timeout": -1}, "l2[0].connection_timeout: connect_timeout_s=-1"),
        ({**VALKEY, "request_timeout": 0}, "l2[0].request_timeout: request_timeout_s=0 must be"),
        ({**VALKEY, "ttl_seconds": 0}, "l2[0].ttl_seconds=0 is outside 1 and up"),
        ({**VALKEY, "ttl_seconds": True}, "l2[0].ttl_seconds=True must be a whole number"),
        ({**VALKEY, "key_prefix": "a@b"}, "l2[0].key_prefix='a@b' must not hold @"),
        ({**DISK, "base_path": ""}, "l2[0].base_path must be a text that is not empty"),
        ({**DISK, "use_odirect": "yes"}, "l2[0].use_odirect='yes' must be true or false"),
    ],
)
def test_a_mistake_is_told_under_the_name_that_was_given(
    spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(spec)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("l1", "message"),
    [
        ({"size_gb": 0}, "l1.size_gb=0 must be above 0"),
        ({"size_gb": float("inf")}, "l1.size_gb=inf must be finite"),
        ({"size_gb": 1, "tag": "hbm"}, "l1.tag must be '_default', or left out: a store has one"),
        ({"size_gb": 1, "type": "gds"}, "l1.type must be 'dram', or left out: L1 is memory"),
        ({"size_gb": 1, "read_ttl_seconds": 0}, "l1.read_ttl_seconds=0 is outside 1 and up"),
        ({"size_gb": 1, "align_bytes": 5000}, "l1.align_bytes: alignment_bytes=5000 must be a po"),
    ],
)
def test_a_mistake_in_its_l1_too(l1: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"l1": l1}, TieredStore)
    assert str(refused.value).startswith(message)
