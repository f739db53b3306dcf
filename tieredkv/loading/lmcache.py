"""LMCache's single-process configuration, brought into the form of its multi-process one.

It names a remote tier by ``remote_url`` or ``remote_storage_plugins``, whose settings stand in
``extra_config``, besides those of the engine, which mean nothing to a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from tieredkv.config import nearest, number
from tieredkv.errors import ConfigError
from tieredkv.loading.aliases import Notes
from tieredkv.loading.schema import Field, Given, fit, given, refuse_unknown

__all__ = ["SingleProcess", "is_single_process", "read_single_process"]

_L1_GIB: Final = 5.0
_TTL_S: Final = 86_400
_MARKS: Final = (
    "extra_config",
    "local_cpu",
    "local_disk",
    "max_local_cpu_size",
    "remote_storage_plugins",
    "remote_url",
)
_PLUGIN: Final = "remote_storage_plugin."
_PLUGIN_FIELDS: Final = (
    "bucket_handle",
    "create_bucket_if_missing",
    "download_tmp_dir",
    "metadata_cache_ttl_secs",
    "token",
    "token_env",
)
_VALKEY_FIELDS: Final = {
    "valkey_num_workers": "num_workers",
    "valkey_sync_num_workers": "num_workers",
    "valkey_username": "username",
    "valkey_password": "password",
    "valkey_mode": "mode",
    "valkey_database": "database_id",
    "request_timeout": "request_timeout",
    "connection_timeout": "connection_timeout",
}
_VALKEY_ONLY: Final = (*_VALKEY_FIELDS, "tls_enable", "valkey_enable_ttl", "valkey_ttl_sec")
_ENGINE: Final = frozenset(
    {
        "audit_actual_remote_url",
        "blend_check_layers",
        "blend_min_tokens",
        "blend_recompute_ratios",
        "blend_special_str",
        "blocking_timeout_secs",
        "cache_policy",
        "chunk_size",
        "controller_pull_url",
        "controller_reply_url",
        "cufile_buffer_size",
        "enable_async_loading",
        "enable_blending",
        "enable_controller",
        "enable_kv_events",
        "enable_lazy_memory_allocator",
        "enable_p2p",
        "enable_pd",
        "enable_scheduler_bypass_lookup",
        "external_lookup_client",
        "gds_path",
        "internal_api_server_enabled",
        "internal_api_server_host",
        "internal_api_server_port_start",
        "lmcache_instance_id",
        "lmcache_worker_heartbeat_delay_time",
        "lmcache_worker_heartbeat_time",
        "lmcache_worker_ids",
        "lmcache_worker_ports",
        "local_cpu",
        "lookup_timeout_ms",
        "min_retrieve_tokens",
        "numa_mode",
        "p2p_host",
        "p2p_init_ports",
        "p2p_lookup_ports",
        "pre_caching_hash_algorithm",
        "priority_limit",
        "py_enable_gc",
        "reserve_local_cpu_size",
        "save_decode_cache",
        "store_location",
        "use_gpu_connector_v3",
        "use_layerwise",
    }
)
_KNOWN: Final = frozenset(
    {*_MARKS, *_ENGINE, "max_local_disk_size", "remote_serde", "save_chunk_meta"}
    | {"save_unfull_chunk"}
)


@attrs.define
class SingleProcess:
    """What it comes to.

    Attributes:
        l1: Settings of L1.
        l2: Of each tier its type, its settings and where it is described.
        rest: Settings that are ours.
    """

    l1: dict[str, Given]
    l2: list[tuple[str, dict[str, Given], str]]
    rest: dict[str, Given]


def is_single_process(root: Mapping[str, Given]) -> bool:
    """Return whether a configuration is of this form."""
    return any(name in root for name in _MARKS)


def read_single_process(
    root: Mapping[str, Given], house: frozenset[str], notes: Notes
) -> SingleProcess:
    """Bring it into the other form.

    Args:
        root: The settings by name.
        house: Names of the store's own settings, which may stand beside.
        notes: Takes what is to be said.

    Raises:
        ConfigError: A setting is malformed, unknown, or cannot be honoured.
    """
    root = dict(root)
    rest = {name: root.pop(name) for name in house & root.keys()}
    refuse_unknown(root, _KNOWN)
    root = {name: item for name, item in root.items() if item.value is not None}
    extra = given(root["extra_config"].value, "extra_config") if "extra_config" in root else {}
    extra = {name: item for name, item in extra.items() if item.value is not None}
    for name in ("save_chunk_meta", "save_unfull_chunk"):
        for place in (root, extra):
            _require_false(place.pop(name, None))
    if (serde := root.pop("remote_serde", None)) and serde.value != "naive":
        raise ConfigError("remote_serde must be 'naive': values are stored as they are")
    result = SingleProcess(_l1(root, rest, notes), _tiers(root, extra, notes), rest)
    notes.unused += [root[name].path for name in sorted(root.keys() & _ENGINE)]
    notes.unused += [item.path for item in extra.values()]
    return result


def _l1(root: dict[str, Given], rest: dict[str, Given], notes: Notes) -> dict[str, Given]:
    size = root.pop("max_local_cpu_size", None)
    if "l1" in rest:
        if size is not None:
            raise ConfigError("max_local_cpu_size and l1 are one setting: give one of them")
        return {}
    if size is None:
        notes.warnings.append(f"max_local_cpu_size is not given: L1 takes {_L1_GIB:g} GiB")
        size = Given(_L1_GIB, "max_local_cpu_size")
    return {"size_gb": size}


def _tiers(
    root: dict[str, Given], extra: dict[str, Given], notes: Notes
) -> list[tuple[str, dict[str, Given], str]]:
    tiers = []
    if (disk := root.get("local_disk")) is not None:
        tiers.append(_disk(disk, root.get("max_local_disk_size")))
    plugins = []
    if (url := root.get("remote_url")) is not None:
        address = _text(url)
        if address.startswith("plugin://"):
            plugins.append(Given(address.removeprefix("plugin://"), url.path))
        elif address.partition("://")[0] in ("valkey", "valkeys"):
            tiers.append(_valkey(url, root, extra, notes))
        else:
            raise ConfigError("remote_url must begin with valkey:// or plugin://hfbucket")
    listed = root.get("remote_storage_plugins")
    if listed is not None:
        names = listed.value if isinstance(listed.value, list) else [listed.value]
        plugins += [Given(name, f"{listed.path}[{at}]") for at, name in enumerate(names)]
    tiers += [_bucket(plugin, extra, notes) for plugin in plugins]
    for name, item in extra.items():
        if name.startswith(_PLUGIN) or name in _VALKEY_ONLY or nearest(name, _VALKEY_ONLY):
            names = sorted(
                {f"{_PLUGIN}{p.value}.{field}" for p in plugins for field in _PLUGIN_FIELDS}
            )
            raise ConfigError(
                f"{item.path} belongs to none of the tiers" + nearest(name, [*names, *_VALKEY_ONLY])
            )
    return tiers


def _disk(place: Given, size: Given | None) -> tuple[str, dict[str, Given], str]:
    path = Given(_text(place).removeprefix("file://"), place.path)
    found = {"base_path": path}
    if size is not None:
        found["max_capacity_gb"] = size
        found["eviction"] = Given({"eviction_policy": "LRU"}, place.path)
    return "disk", found, place.path


def _bucket(
    plugin: Given, extra: dict[str, Given], notes: Notes
) -> tuple[str, dict[str, Given], str]:
    name = _text(plugin)
    if name.partition(".")[0] != "hfbucket":
        raise ConfigError(
            f"{plugin.path}={name!r} is no plugin that we know: use 'hfbucket[.name]'"
        )
    head = f"{_PLUGIN}{name}."
    found = {"name": Given(name, plugin.path)}
    for field in _PLUGIN_FIELDS:
        if (item := extra.pop(head + field, None)) is not None:
            found[field] = item
    if "bucket_handle" not in found:
        raise ConfigError(
            f"{plugin.path}={name!r}: extra_config.{head}bucket_handle is missing: it must be given"
        )
    if (ttl := found.get("metadata_cache_ttl_secs")) is not None:
        found["metadata_cache_ttl_secs"] = Given(_number(ttl), ttl.path)
    if (token := found.get("token")) is not None and token.value == "":
        del found["token"]
    variable = found.get("token_env")
    if variable is not None and not isinstance(variable.value, str):
        del found["token_env"]
        notes.warnings.append(f"{variable.path} is no name of a variable: HF_TOKEN is used")
    return "hfbucket", found, plugin.path


def _valkey(
    url: Given, root: dict[str, Given], extra: dict[str, Given], notes: Notes
) -> tuple[str, dict[str, Given], str]:
    found: dict[str, Given] = {}
    for name, field in _VALKEY_FIELDS.items():
        if (item := extra.pop(name, None)) is not None:
            found.setdefault(field, item)
    address = str(url.value)
    if (tls := extra.pop("tls_enable", None)) is not None and fit(tls, Field((bool,), None)):
        address = address.replace("valkey://", "valkeys://", 1)
    found["address"] = Given(address, url.path, url.value)
    if "blocking_timeout_secs" in root and "request_timeout" not in found:
        found["request_timeout"] = root.pop("blocking_timeout_secs")
    enabled, ttl = extra.pop("valkey_enable_ttl", None), extra.pop("valkey_ttl_sec", None)
    if enabled is not None and fit(enabled, Field((bool,), None)):
        if ttl is not None:
            found["ttl_seconds"] = Given(_whole_seconds(ttl), ttl.path, ttl.value)
        else:
            found["ttl_seconds"] = Given(_TTL_S, enabled.path)
            notes.warnings.append(
                f"{enabled.path} without valkey_ttl_sec: values live for {_TTL_S} s"
            )
    elif ttl is not None:
        notes.unused.append(ttl.path)
    return "valkey", found, url.path


def _whole_seconds(item: Given) -> int:
    value = _number(item)
    if not value >= 1:
        raise ConfigError(f"{item.path}={item.value!r} must be at least 1 second")
    return int(value)


def _number(item: Given) -> Any:
    """Return a number, also of a text: LMCache takes both here."""
    value = item.value
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ConfigError(f"{item.path}={item.value!r:.80} must be a number") from None
    return number(value, field=item.path, low=0)


def _text(item: Given) -> str:
    if not isinstance(item.value, str) or not item.value:
        raise ConfigError(f"{item.path} must be a text that is not empty")
    return item.value


def _require_false(item: Given | None) -> None:
    if item is not None and item.value is not False and item.value != "false":
        raise ConfigError(f"{item.path} must be false: a value is stored whole, without metadata")
