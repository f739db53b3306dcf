"""Configurations under our own names: what is taken, and how a mistake is told."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.loading.effective import effective, given, loaded
from tieredkv import BlockingTieredStore, L1Config, TieredStore, WriteBack, WriteThrough
from tieredkv.backends import DiskBackend, HFBucketBackend, ValkeyBackend
from tieredkv.config import GiB, MiB
from tieredkv.errors import ConfigError, StoreClosedError
from tieredkv.loading import load


def test_l1_alone_is_a_configuration() -> None:
    assert effective(load({"l1": "64MiB"}, TieredStore))["l1.capacity"] == "64MiB"
    assert effective(load({"l1": 64 * MiB}, TieredStore))["l1.overflow"] == 64 * MiB


def test_every_argument_of_a_constructor_can_be_configured_but_objects() -> None:
    told = effective(
        loaded(
            {"type": "disk", "path": "/var/cache/kv"},
            {"type": "valkey", "address": "valkey://127.0.0.1"},
            {"type": "hfbucket", "handle": "hf://buckets/org/kv"},
        )
    )
    for head, target in {
        "l1.": L1Config,
        "l2[0].": DiskBackend,
        "l2[1].": ValkeyBackend,
        "l2[2].": HFBucketBackend,
        "": TieredStore,
    }.items():
        names = set(inspect.signature(target).parameters) - {"l1", "l2", "buffer"}
        assert {head + name for name in names} <= told.keys()


def test_settings_reach_the_store_and_its_backends() -> None:
    configuration = load(
        {
            "l1": {"capacity": "1GiB", "eviction_policy": "lru", "trigger_watermark": 0.5},
            "l2": [
                {"type": "disk", "path": "~/kv", "capacity": "200GiB", "durability": "fsync"},
                {
                    "type": "valkey",
                    "address": ["valkeys://a:1", "valkeys://b:2"],
                    "mode": "cluster",
                    "tls": {"insecure": True},
                    "ttl_s": 60,
                },
                {"type": "hfbucket", "handle": "hf://buckets/o/b/p", "token": False},
            ],
            "write_policy": {"type": "write_through", "require": "all"},
            "integrity": "size",
            "max_pending": "8MiB",
        },
        TieredStore,
    )
    told = given(configuration)
    assert told["l2[1].address"] == ["valkeys://a:1", "valkeys://b:2"]
    assert told["l2[2].token"] is False
    store = configuration.store
    disk, valkey, bucket = store._backends
    assert isinstance(disk, DiskBackend)
    assert disk.capacity_bytes == 200 * GiB
    assert isinstance(valkey, ValkeyBackend)
    assert (valkey._settings.cluster, valkey.ttl_s) == (True, 60)
    assert isinstance(bucket, HFBucketBackend)
    assert bucket.handle.prefix == "p"
    assert store._config.eviction_policy == "lru"
    assert store._max_pending == 8 * MiB
    assert store._policy == WriteThrough(require="all")


def test_a_policy_is_named_alone_where_its_defaults_do() -> None:
    assert loaded(write_policy="write_through").store._policy == WriteThrough()


def test_a_policy_is_chosen_by_its_kind() -> None:
    told = {"type": "write_back", "max_dirty": "1MiB", "workers": 2}
    assert loaded(write_policy=told).store._policy == WriteBack(max_dirty=MiB, workers=2)


def test_a_single_tier_needs_no_list() -> None:
    told = given(load({"l1": "4MiB", "l2": {"type": "disk", "path": "/kv"}}, TieredStore))
    assert told == {"l2[0].type": "disk", "l2[0].path": "/kv"}


def test_tiers_of_one_type_are_told_apart() -> None:
    told = effective(loaded(*[{"type": "disk", "path": f"/{n}"} for n in range(3)]))
    assert [told[f"l2[{n}].name"] for n in range(3)] == ["disk", "disk-2", "disk-3"]


def test_null_is_the_default() -> None:
    spec = {"type": "valkey", "address": "valkey://h", "num_workers": None, "password": None}
    told = effective(loaded(spec))
    assert (told["l2[0].num_workers"], told["l2[0].password"]) == (8, None)


async def test_a_configured_store_works(anyio_backend: object, tmp_path: Any) -> None:
    source = {"l1": "4MiB", "l2": [{"type": "disk", "path": str(tmp_path)}]}
    async with TieredStore.from_config(source) as store:
        await store.put("key", b"value")
    async with TieredStore.from_config(source) as store:
        assert await store.get_bytes("key") == b"value"


def test_a_blocking_store_takes_its_own_settings_too() -> None:
    with BlockingTieredStore.from_config({"l1": "4MiB", "event_loop": "trio"}) as store:
        store.put("key", b"value")
        assert store.get_bytes("key") == b"value"


def test_nothing_is_opened() -> None:
    store = TieredStore.from_config({"l1": "4MiB", "l2": {"type": "disk", "path": "/proc/none"}})
    with pytest.raises(StoreClosedError):
        store.stats()


DISK = {"type": "disk", "path": "/kv"}
VALKEY = {"type": "valkey", "address": "valkey://h"}
BUCKET = {"type": "hfbucket", "handle": "hf://buckets/o/b"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "l1 is missing: give its capacity, such as '4GiB'"),
        ({"l1": None}, "l1 is missing"),
        ({"l1": True}, "l1=True must be a size"),
        ({"l1": float("nan")}, "l1=nan must be a size"),
        ({"l1": "4G"}, "l1: capacity='4G' has two readings"),
        ({"l1": []}, "l1 must be a size"),
        ({"l1": {"capasity": 1}}, "l1.capasity is no field (did you mean 'capacity'?)"),
        ({"l1": {}}, "l1.capacity is missing: it must be given"),
        ({"l1": {"capacity": 4096, "buffer": "x"}}, "l1.buffer is no field"),
        ({"l1": {"capacity": 4096, "prefault": "false"}}, "l1.prefault='false' must be true or"),
        (
            {"l1": {"capacity": 4096, "trigger_watermark": 80}},
            "l1.trigger_watermark=80 is outside 0..1",
        ),
        (
            {"l1": {"capacity": 4096, "eviction_ratio": float("nan")}},
            "l1.eviction_ratio=nan must be finite",
        ),
        (
            {"l1": {"capacity": 4096, "eviction_policy": "lruu"}},
            "l1.eviction_policy='lruu' must be one of",
        ),
        ({"l1": "4MiB", "l22": []}, "l22 is no field (did you mean 'l2'?)"),
        ({"l1": "4MiB", "fail_open": "no"}, "fail_open='no' must be true or false"),
        ({"l1": "4MiB", "integrity": "crc"}, "integrity='crc' must be one of 'checksum', 'size'"),
        ({"l1": "4MiB", "max_pending": -1}, "max_pending=-1 is outside 0 and up"),
        (
            {"l1": "4MiB", "write_policy": {"type": "write_thru"}},
            "write_policy.type='write_thru' must be one of",
        ),
        (
            {"l1": "4MiB", "write_policy": {"type": "write_through", "require": "most"}},
            "write_policy.require='most' must be one of 'any', 'all', 'none'",
        ),
        ({"l1": "4MiB", "write_policy": 1}, "write_policy=1 must be a mapping of type"),
        ({"l1": "4MiB", "l2": "valkey://h"}, "l2 must be a list of mappings, not a text"),
        ({"l1": "4MiB", "l2": [[]]}, "l2[0] must be a mapping of fields, not a list"),
        ({"l1": "4MiB", "l2": [DISK, {}]}, "l2[1].type is missing: it is one of disk, valkey"),
        (
            {"l1": "4MiB", "l2": [{"type": "valky"}]},
            (
                "l2[0].type='valky' must be one of 'disk', 'valkey', 'hfbucket', 'fs' "
                "(did you mean 'valkey'?)"
            ),
        ),
        (
            {"l1": "4MiB", "l2": [DISK, {**VALKEY, "num_worker": 3}]},
            "l2[1].num_worker is no field (did you mean 'num_workers'?)",
        ),
        ({"l1": "4MiB", "l2": [{"type": "disk"}]}, "l2[0].path is missing: it must be given"),
        ({"l1": "4MiB", "l2": [{"type": "disk", "path": 3}]}, "l2[0].path=3 must be a text"),
        (
            {"l1": "4MiB", "l2": [{"type": "disk", "path": "~no-such-user/kv"}]},
            "l2[0].path='~no-such-user/kv': there is no such user",
        ),
        (
            {"l1": "4MiB", "l2": [{**DISK, "num_workers": True}]},
            "l2[0].num_workers=True must be a whole number",
        ),
        (
            {"l1": "4MiB", "l2": [{**DISK, "num_workers": 4.0}]},
            "l2[0].num_workers=4.0 must be a whole number",
        ),
        ({"l1": "4MiB", "l2": [{**DISK, "num_workers": 0}]}, "l2[0].num_workers=0 is outside 1"),
        ({"l1": "4MiB", "l2": [{**DISK, "name": "l1"}]}, "l2: the name 'l1' is taken"),
        (
            {"l1": "4MiB", "l2": [{**VALKEY, "request_timeout_s": float("inf")}]},
            "l2[0].request_timeout_s=inf must be finite",
        ),
        (
            {"l1": "4MiB", "l2": [{**VALKEY, "tls": {"cert": "c.pem"}}]},
            "l2[0].tls: tls.cert and tls.key go together",
        ),
        (
            {"l1": "4MiB", "l2": [{**VALKEY, "tls": {"cart": "c.pem"}}]},
            "l2[0].tls.cart is no field (did you mean 'cert'?)",
        ),
        (
            {"l1": "4MiB", "l2": [{**VALKEY, "tls": {}}]},
            "l2[0].tls= is given, but the address is without TLS: write valkeys://",
        ),
        ({"l1": "4MiB", "l2": [{**VALKEY, "mode": "Cluster"}]}, "l2[0].mode='Cluster' must be one"),
        ({"l1": "4MiB", "l2": [{**VALKEY, "address": [1]}]}, "l2[0].address must be a text or a"),
        (
            {"l1": "4MiB", "l2": [{**BUCKET, "token": True}]},
            "l2[0].token must be a text or False",
        ),
        (
            {"l1": "4MiB", "l2": [{**BUCKET, "handle": "hf://buckets/o"}]},
            "l2[0].handle='hf://buckets/o' needs a namespace and a bucket",
        ),
        ({"l1": "4MiB", 5: 6}, "configuration has a field 5: names are texts"),
        ([DISK], "configuration must be a mapping of fields, not a list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_told_by_its_place(source: Any, message: str, tmp_path: Any) -> None:
    if isinstance(source, list):
        file = tmp_path / "list.json"
        file.write_text("[]")
        source = file
    with pytest.raises(ConfigError) as refused:
        load(source, TieredStore)
    assert str(refused.value).startswith(message)


def test_what_is_neither_a_mapping_nor_a_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="a mapping or the path of a file, not int"):
        TieredStore.from_config(5)  # type: ignore[arg-type]


def test_two_eviction_authorities_are_a_warning() -> None:
    (warning,) = loaded({**VALKEY, "capacity": "1GiB", "ttl_s": 60}).warnings
    assert warning.startswith("l2[0]: capacity and ttl_s are two eviction authorities")


def test_a_private_bucket_that_is_never_created_is_a_warning() -> None:
    (warning,) = loaded({**BUCKET, "token": "t", "token_env": "NO_SUCH", "private": True}).warnings
    assert warning == "l2[0].private has no effect without create_bucket"


def test_settings_that_need_others_are_warnings() -> None:
    source = {"l1": {"capacity": "4MiB", "eviction_policy": "noop", "eviction_ratio": 0.1}}
    assert load({**source, "write_policy": "write_through"}, TieredStore).warnings == (
        "l1.eviction_ratio has no effect without an eviction policy",
        "write_policy has no effect without tiers in l2",
    )
