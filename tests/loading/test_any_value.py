"""Any JSON value is a configuration, or is refused by the place of a mistake; nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tieredkv import TieredStore
from tieredkv.errors import ConfigError
from tieredkv.loading import load
from tieredkv.loading.aliases import foreign_names

NAMES = [
    *("l1", "l2", "integrity", "write_policy", "fail_open", "max_pending", "extra_config"),
    *("remote_url", "remote_storage_plugins", "max_local_cpu_size", "local_disk", "remote_serde"),
    *("type", "path", "address", "handle", "capacity", "num_workers", "tls", "token", "name"),
    *("overflow", "eviction_policy", "mode", "db", "password", "user", "ttl_s", "require"),
    *("valkey_mode", "valkey_enable_ttl", "valkey_ttl_sec", "chunk_size", "ca", "insecure"),
    "remote_storage_plugin.hfbucket.bucket_handle",
    *sorted(set().union(*map(foreign_names, ("l1", "disk", "valkey", "hfbucket")))),
]
TEXTS = [
    *("4MiB", "4G", "disk", "valkey", "hfbucket", "fs", "valkey://h", "hf://buckets/o/b", "h:1"),
    *("any", "LRU", "cluster", "write_through", "${HOME}", "${", "~", "~x", "\0", "", "\ud800"),
    *("plugin://hfbucket", "false", "valkey://[", "unix:///v.sock", "naive", "_default"),
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, 4096, 2**22])
    | st.floats()
    | st.sampled_from(TEXTS)
    | st.text(max_size=8)
)
names = st.sampled_from(NAMES) | st.text(max_size=6)


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(children, max_size=3) | st.dictionaries(names, children, max_size=4)


values = st.recursive(scalars, nested, max_leaves=12)
kinds = st.sampled_from(["disk", "fs", "valkey", "hfbucket"])
places = {
    "path": st.just("/kv"),
    "address": st.sampled_from(["valkey://h", ["valkeys://h"]]),
    "handle": st.just("hf://buckets/o/b"),
}
specs = st.builds(
    lambda kind, place, more: {"type": kind, **place, **more},
    kinds,
    st.fixed_dictionaries({}, optional=places),
    st.dictionaries(names, values, max_size=3),
)
sources = st.fixed_dictionaries(
    {"l1": st.just("4MiB") | values},
    optional={"l2": st.lists(specs | values, max_size=2), "write_policy": values},
) | st.dictionaries(names, values, max_size=4)


@settings(max_examples=500)
@given(sources)
def test_it_is_taken_or_refused_by_its_place(source: dict[str, Any]) -> None:
    before = json.dumps(source)
    complaint = complaint_about(source)
    places = ("configuration", "l1", "l2", *filter(None, source))
    assert not complaint or complaint.startswith(places)
    assert json.dumps(source) == before


def complaint_about(source: Any) -> str:
    """Return why a configuration is refused; empty if it is taken."""
    try:
        repr(load(source, TieredStore))
    except ConfigError as error:
        return str(error)
    return ""


@settings(max_examples=300)
@given(st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_any_file_is_taken_or_refused(tmp_path_factory: Any, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    for ending in (".json", ".toml", ".yaml"):
        file.with_suffix(ending).write_bytes(content)
        assert "Traceback" not in complaint_about(file.with_suffix(ending))
