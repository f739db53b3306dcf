"""Files of LMCache's single-process mode, taken as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.loading.effective import effective, given
from tieredkv import TieredStore
from tieredkv.config import GiB
from tieredkv.errors import ConfigError
from tieredkv.loading import load

HEAD = "remote_storage_plugin.hfbucket."


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody to be at the Hub."""
    for name in ("HF_TOKEN", "HF_US_TOKEN", "HF_EU_TOKEN"):
        monkeypatch.setenv(name, "hf_token")


def test_a_bucket_plugin(tmp_path: Path) -> None:
    file = tmp_path / "lmcache.yaml"
    file.write_text(
        """
        chunk_size: 256
        local_cpu: false
        save_unfull_chunk: false
        remote_serde: "naive"
        blocking_timeout_secs: 10
        remote_storage_plugins: ["hfbucket"]
        extra_config:
          remote_storage_plugin.hfbucket.bucket_handle: "hf://buckets/my-org/lmcache-kv/prod"
          remote_storage_plugin.hfbucket.token_env: "HF_TOKEN"
          remote_storage_plugin.hfbucket.create_bucket_if_missing: false
          remote_storage_plugin.hfbucket.download_tmp_dir: "/tmp/lmcache-hfbucket"
          remote_storage_plugin.hfbucket.metadata_cache_ttl_secs: 30
        """
    )
    configuration = load(file, TieredStore)
    assert given(configuration) == {
        "l2[0].type": "hfbucket",
        "l2[0].name": "hfbucket",
        "l2[0].handle": "hf://buckets/my-org/lmcache-kv/prod",
        "l2[0].token_env": "HF_TOKEN",
        "l2[0].create_bucket": False,
        "l2[0].metadata_ttl_s": 30,
    }
    assert effective(configuration)["l1.capacity"] == 5 * GiB
    assert configuration.warnings == ("max_local_cpu_size is not given: L1 takes 5 GiB",)
    assert configuration.unused == (
        "blocking_timeout_secs",
        "chunk_size",
        "local_cpu",
        f"extra_config.{HEAD}download_tmp_dir",
    )


def test_two_buckets() -> None:
    told = given(
        load(
            {
                "max_local_cpu_size": 1,
                "remote_storage_plugins": ["hfbucket.us", "hfbucket.eu"],
                "extra_config": {
                    f"{HEAD}us.bucket_handle": "hf://buckets/my-org/kv/us",
                    f"{HEAD}us.token_env": "HF_US_TOKEN",
                    f"{HEAD}eu.bucket_handle": "hf://buckets/my-org/kv/eu",
                    f"{HEAD}eu.token_env": "HF_EU_TOKEN",
                    f"{HEAD}eu.metadata_cache_ttl_secs": "5",
                },
            },
            TieredStore,
        )
    )
    assert told == {
        "l2[0].type": "hfbucket",
        "l2[0].name": "hfbucket.us",
        "l2[0].handle": "hf://buckets/my-org/kv/us",
        "l2[0].token_env": "HF_US_TOKEN",
        "l2[1].type": "hfbucket",
        "l2[1].name": "hfbucket.eu",
        "l2[1].handle": "hf://buckets/my-org/kv/eu",
        "l2[1].token_env": "HF_EU_TOKEN",
        "l2[1].metadata_ttl_s": 5.0,
    }


def test_a_bucket_by_its_address() -> None:
    told = given(
        load(
            {
                "l1": "4MiB",
                "remote_url": "plugin://hfbucket.prod",
                "extra_config": {f"{HEAD}prod.bucket_handle": "hf://buckets/o/b"},
            },
            TieredStore,
        )
    )
    assert told["l2[0].name"] == "hfbucket.prod"
    assert told["l2[0].handle"] == "hf://buckets/o/b"


def bucket(**settings: Any) -> dict[str, Any]:
    extra = {f"{HEAD}{name}": value for name, value in settings.items()}
    extra[f"{HEAD}bucket_handle"] = "hf://buckets/o/b"
    return {"l1": "4MiB", "remote_storage_plugins": ["hfbucket"], "extra_config": extra}


def test_an_empty_token_is_none() -> None:
    configuration = load(bucket(token="", token_env=None), TieredStore)
    assert (configuration.warnings, configuration.unused) == ((), ())
    told = effective(configuration)
    assert (told["l2[0].token_env"], told["l2[0].create_bucket"]) == ("HF_TOKEN", False)


def test_what_is_no_name_of_a_variable_is_hf_token_as_there_and_a_warning() -> None:
    configuration = load(bucket(token_env=5), TieredStore)
    assert effective(configuration)["l2[0].token_env"] == "HF_TOKEN"
    assert configuration.warnings == (
        f"extra_config.{HEAD}token_env is no name of a variable: HF_TOKEN is used",
    )


def test_words_for_true_come_from_a_variable_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREATE", " Yes ")
    configuration = load(bucket(create_bucket_if_missing="${CREATE}"), TieredStore)
    assert configuration.store._backends[0]._creates is True  # type: ignore[attr-defined]


def test_a_database_has_no_meaning_in_a_cluster(caplog: pytest.LogCaptureFixture) -> None:
    load(valkey(valkey_mode="cluster", valkey_database=3), TieredStore)
    assert "db=3 has no meaning in a Cluster and is ignored" in caplog.text


def test_a_valkey_address() -> None:
    configuration = load(
        {
            "max_local_cpu_size": 0.5,
            "remote_url": "valkey://cache.example:6379",
            "extra_config": {
                "save_chunk_meta": False,
                "valkey_num_workers": 16,
                "valkey_username": "lmcache",
                "valkey_password": "secret",
                "tls_enable": True,
                "connection_timeout": 3,
                "valkey_mode": "cluster",
                "valkey_enable_ttl": True,
                "valkey_ttl_sec": "90.7",
            },
            "blocking_timeout_secs": 7,
        },
        TieredStore,
    )
    assert (configuration.warnings, configuration.unused) == ((), ())
    assert given(configuration) == {
        "l2[0].type": "valkey",
        "l2[0].address": "valkeys://cache.example:6379",
        "l2[0].mode": "cluster",
        "l2[0].user": "lmcache",
        "l2[0].password": "…",
        "l2[0].ttl_s": 90,
        "l2[0].num_workers": 16,
        "l2[0].request_timeout_s": 7,
        "l2[0].connect_timeout_s": 3,
    }


def valkey(**extra: Any) -> dict[str, Any]:
    return {"l1": "4MiB", "remote_url": "valkey://h:1", "extra_config": extra}


def test_its_old_name_of_the_workers() -> None:
    old, new = {"valkey_sync_num_workers": 3}, {"valkey_num_workers": 5}
    assert given(load(valkey(**old), TieredStore))["l2[0].num_workers"] == 3
    assert given(load(valkey(**old, **new), TieredStore))["l2[0].num_workers"] == 5


def test_its_own_timeout_goes_before_that_of_all() -> None:
    source = {**valkey(request_timeout=2), "blocking_timeout_secs": 7}
    assert given(load(source, TieredStore))["l2[0].request_timeout_s"] == 2


def test_a_ttl_without_seconds_is_a_day() -> None:
    configuration = load(valkey(valkey_enable_ttl=True), TieredStore)
    assert given(configuration)["l2[0].ttl_s"] == 86_400
    assert configuration.warnings == (
        "extra_config.valkey_enable_ttl without valkey_ttl_sec: values live for 86400 s",
    )


def test_a_ttl_that_is_not_enabled_has_no_effect() -> None:
    configuration = load(valkey(valkey_ttl_sec=60), TieredStore)
    assert effective(configuration)["l2[0].ttl_s"] is None
    assert configuration.unused == ("extra_config.valkey_ttl_sec",)


def test_its_disk_goes_before_what_is_remote() -> None:
    source = {**valkey(), "local_disk": "file:///data/kv", "max_local_disk_size": 20}
    told = effective(load(source, TieredStore))
    assert (told["l2[0].path"], told["l2[0].capacity"]) == ("/data/kv", 20 * GiB)
    assert told["l2[1].type"] == "valkey"


def test_the_callers_mapping_is_left_as_it_is() -> None:
    source = valkey(valkey_num_workers=3)
    load(source, TieredStore)
    assert source == valkey(valkey_num_workers=3)


def test_our_own_settings_may_stand_beside() -> None:
    assert effective(load({**valkey(), "fail_open": False}, TieredStore))["fail_open"] is False


@pytest.mark.parametrize("false", [False, "false"])
@pytest.mark.parametrize("name", ["save_chunk_meta", "save_unfull_chunk"])
def test_whole_chunks_without_metadata_are_what_we_do(name: str, false: object) -> None:
    load(valkey(**{name: false}), TieredStore)
    load({**valkey(), name: false}, TieredStore)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"remote_storage_plugins": ["hfbucket.us"]},
            f"remote_storage_plugins[0]='hfbucket.us': extra_config.{HEAD}us.bucket_handle is miss",
        ),
        (
            {
                "remote_storage_plugins": ["hfbucket"],
                "extra_config": {f"{HEAD}bucket_handle": ""},
            },
            f"extra_config.{HEAD}bucket_handle: handle='' must be a text",
        ),
        (
            {
                "remote_storage_plugins": ["hfbucket"],
                "extra_config": {
                    f"{HEAD}bucket_handle": "hf://buckets/o/b",
                    f"{HEAD}bucket_handel": "hf://buckets/o/b",
                },
            },
            (
                f"extra_config.{HEAD}bucket_handel belongs to none of the tiers (did you mean "
                f"'{HEAD}bucket_handle'?)"
            ),
        ),
        (
            {
                "remote_storage_plugins": ["hfbucket"],
                "extra_config": {
                    f"{HEAD}bucket_handle": "hf://buckets/o/b",
                    f"{HEAD}metadata_cache_ttl_secs": "-1",
                },
            },
            f"extra_config.{HEAD}metadata_cache_ttl_secs=-1.0 is outside 0 and up",
        ),
        (
            {
                "remote_storage_plugins": ["hfbucket"],
                "extra_config": {
                    f"{HEAD}bucket_handle": "hf://buckets/o/b",
                    f"{HEAD}metadata_cache_ttl_secs": [30],
                },
            },
            f"extra_config.{HEAD}metadata_cache_ttl_secs=[30] must be a number",
        ),
        (
            {
                "remote_storage_plugins": ["hfbucket"],
                "extra_config": {
                    f"{HEAD}bucket_handle": "hf://buckets/o/b",
                    f"{HEAD}create_bucket_if_missing": "yes",
                },
            },
            f"extra_config.{HEAD}create_bucket_if_missing='yes' must be true or false",
        ),
        (
            {"remote_storage_plugins": ["mooncake"]},
            "remote_storage_plugins[0]='mooncake' is no plu",
        ),
        ({"remote_storage_plugins": [7]}, "remote_storage_plugins[0] must be a text"),
        ({"remote_url": "redis://h:1"}, "remote_url must begin with valkey:// or plugin://"),
        ({"remote_url": 7}, "remote_url must be a text"),
        ({**valkey(), "remote_ulr": "x"}, "remote_ulr is no field (did you mean 'remote_url'?)"),
        ({**valkey(), "remote_serde": "cachegen"}, "remote_serde must be 'naive'"),
        ({**valkey(), "max_local_cpu_size": 1}, "max_local_cpu_size and l1 are one setting"),
        ({**valkey(), "l2": []}, "l2 is no field"),
        ({**valkey(), "extra_config": []}, "extra_config must be a mapping of fields, not a list"),
        (valkey(save_chunk_meta=True), "extra_config.save_chunk_meta must be false"),
        ({**valkey(), "save_unfull_chunk": True}, "save_unfull_chunk must be false"),
        (valkey(valkey_mode="Cluster"), "extra_config.valkey_mode='Cluster' must be one of"),
        (
            valkey(valkey_pasword="hunter2"),
            (
                "extra_config.valkey_pasword belongs to none of the tiers (did you mean "
                "'valkey_password'?)"
            ),
        ),
        (
            valkey(valkey_enable_ttl=True, valkey_ttl_sec=0.5),
            "extra_config.valkey_ttl_sec=0.5 must be at least 1 second",
        ),
        (
            valkey(valkey_enable_ttl=True, valkey_ttl_sec=True),
            "extra_config.valkey_ttl_sec=True must be a number",
        ),
        (
            valkey(valkey_enable_ttl=True, valkey_ttl_sec="soon"),
            "extra_config.valkey_ttl_sec='soon' must be a number",
        ),
        (
            valkey(valkey_enable_ttl=True, valkey_ttl_sec=-5),
            "extra_config.valkey_ttl_sec=-5 is outside 0 and up",
        ),
        (valkey(valkey_enable_ttl="true"), "extra_config.valkey_enable_ttl='true' must be true or"),
        (valkey(valkey_num_workers=0), "extra_config.valkey_num_workers: num_workers=0 is outside"),
    ],
)
def test_a_mistake_is_told_by_its_place(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(source, TieredStore)
    assert str(refused.value).startswith(message)
