"""Other systems' names for our settings. They live here, and nowhere else.

The table is that of LMCache 0.5: the adapters of its multi-process mode (``--l2-adapter``) and its
L1. What its single-process mode says is brought into this form by `tieredkv.loading.lmcache`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from tieredkv.config import GiB, choice, number, whole
from tieredkv.errors import ConfigError
from tieredkv.loading.schema import Field, Given, fit, given, refuse_unknown

__all__ = ["TYPES", "Notes", "foreign_names", "house_names"]

TYPES: Final[Mapping[str, str]] = {"fs": "disk"}
"""Foreign name of a backend's type → ours."""


@attrs.define
class Notes:
    """What is worth saying of a configuration that works.

    Attributes:
        warnings: What is probably not meant, or has another effect than it says.
        unused: Paths of settings without effect here.
    """

    warnings: list[str] = attrs.field(factory=list)
    unused: list[str] = attrs.field(factory=list)


Convert: TypeAlias = Callable[[Given], Any]
Check: TypeAlias = Callable[[Given], object]


@attrs.frozen
class Alias:
    """A foreign name.

    Attributes:
        house: Our name.
        convert: Makes our value of theirs; None stands for a setting that is not given.
    """

    house: str
    convert: Convert


def _is(*arms: Any) -> Convert:
    return lambda item: fit(item, Field(arms, None))


def _text(item: Given) -> str:
    text: str = fit(item, Field((str,), None))
    if not text:
        raise ConfigError(f"{item.path} must be a text that is not empty")
    return text


def _same(item: Given) -> Any:
    return item.value


def _gib(item: Given) -> int | None:
    size = number(fit(item, Field((float,), None)), field=item.path, low=0)
    return int(size * GiB) or None


def _l1_gib(item: Given) -> int:
    size = _gib(item)
    if not size:
        raise ConfigError(f"{item.path}={item.value!r} must be above 0 (it counts GiB)")
    return size


def _mode(item: Given) -> str:
    return "cluster" if fit(item, Field((bool,), None)) else "standalone"


def _count(item: Given) -> int:
    return whole(fit(item, Field((int,), None)), field=item.path, low=1)


def _only(*values: object, why: str) -> Check:
    """Make a check that refuses a setting that we would have to act on."""

    def check(item: Given) -> None:
        if not any(item.value == value and type(item.value) is type(value) for value in values):
            raise ConfigError(f"{item.path} must be {values[0]!r}, or left out: {why}")

    return check


def _counts(item: Given) -> None:
    for count in given(item.value, item.path).values():
        _count(count)


_CAPACITY: Final = {"max_capacity_gb": Alias("capacity", _gib)}

_ALIASES: Final[Mapping[str, Mapping[str, Alias]]] = {
    "l1": {
        "size_gb": Alias("capacity", _l1_gib),
        "align_bytes": Alias("alignment_bytes", _same),
    },
    "disk": {"base_path": Alias("path", _text), **_CAPACITY},
    "valkey": {
        "cluster_mode": Alias("mode", _mode),
        "username": Alias("user", _same),
        "database_id": Alias("db", _same),
        "request_timeout": Alias("request_timeout_s", _same),
        "connection_timeout": Alias("connect_timeout_s", _same),
        "ttl_seconds": Alias("ttl_s", _count),
        **_CAPACITY,
    },
    "hfbucket": {
        "bucket_handle": Alias("handle", _same),
        "create_bucket_if_missing": Alias("create_bucket", _same),
        "metadata_cache_ttl_secs": Alias("metadata_ttl_s", _same),
        **_CAPACITY,
    },
}

_COMMON_UNUSED: Final[Mapping[str, Check]] = {
    "shared": _is(bool),
    "affinity_tag": _only("_default", why="a store has one L1"),
    "persist_enabled": _only(True, why="write_on='never' keeps a store from writing to a tier"),
    "serde": _only(None, why="values are stored as they are; convert them before put"),
    "per_op_workers": _counts,
}
_UNUSED: Final[Mapping[str, Mapping[str, Check]]] = {
    "l1": {
        "type": _only("dram", why="L1 is memory"),
        "tag": _only("_default", why="a store has one L1"),
        "read_ttl_seconds": _count,
        "write_ttl_seconds": _count,
    },
    "disk": {
        "relative_tmp_dir": _is(str),
        "read_ahead_size": _count,
        "use_odirect": _is(bool),
        "recover_on_start": _is(bool),
        **_COMMON_UNUSED,
    },
    "valkey": _COMMON_UNUSED,
    "hfbucket": {"download_tmp_dir": _text, **_COMMON_UNUSED},
}
_ASSEMBLED: Final[Mapping[str, tuple[str, ...]]] = {
    "l1": ("eviction",),
    "disk": ("eviction",),
    "valkey": ("eviction", "startup_nodes", "tls_enable"),
    "hfbucket": ("eviction",),
}

_POLICIES: Final = {"LRU": "lru", "ARC": "arc", "IsolatedLRU": "isolated_lru", "noop": "noop"}
_EVICTION_FIELDS: Final = ("eviction_policy", "trigger_watermark", "eviction_ratio")
_NODE: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@?#%,\[\]]+):(?P<port>[0-9]{1,9})")


def foreign_names(kind: str) -> frozenset[str]:
    """Return the foreign names that a type of backend, or ``"l1"``, is given by."""
    return frozenset({*_ALIASES[kind], *_UNUSED[kind], *_ASSEMBLED[kind]})


def house_names(kind: str, found: Mapping[str, Given], notes: Notes) -> dict[str, Given]:
    """Return the settings under our names; what has another name already keeps it.

    Args:
        kind: Our name of a backend's type, or ``"l1"``.
        found: The settings by the names under which they were given.
        notes: Takes what is to be said.

    Raises:
        ConfigError: A foreign setting is malformed, stands beside ours, or cannot be honoured.
    """
    found = {
        name: item
        for name, item in found.items()
        if item.value is not None or name not in foreign_names(kind)
    }
    result: dict[str, Given] = {}
    if kind == "valkey":
        _assemble_address(found, result)
    for name, item in found.items():
        if alias := _ALIASES[kind].get(name):
            converted = alias.convert(item)
            if converted is not None:
                _put(result, alias.house, Given(converted, item.path, item.value))
        elif check := _UNUSED[kind].get(name):
            check(item)
            notes.unused.append(item.path)
        elif name not in _ASSEMBLED[kind]:
            _put(result, name, item)
    eviction = found.get("eviction")
    if kind == "l1":
        _spread_eviction(eviction, result)
    else:
        _judge_eviction(eviction, result, notes)
    return result


def _put(result: dict[str, Given], house: str, item: Given) -> None:
    if house in result:
        raise ConfigError(f"{item.path} and {result[house].path} are one setting: give one of them")
    result[house] = item


def _assemble_address(found: Mapping[str, Given], result: dict[str, Given]) -> None:
    """Make addresses of ``startup_nodes``; TLS is a part of ours."""
    nodes, tls = found.get("startup_nodes"), found.get("tls_enable")
    encrypted = tls is not None and fit(tls, Field((bool,), None))
    if nodes is None:
        if encrypted and tls is not None:
            raise ConfigError(
                f"{tls.path} goes with startup_nodes: write valkeys:// in the address"
            )
        return
    form = "'host:port' or 'host:port,host:port'"
    texts = [text.strip() for text in _text(nodes).split(",")]
    scheme = "valkeys" if encrypted else "valkey"
    addresses = []
    for text in filter(None, texts):
        node = _NODE.fullmatch(text)
        if node is None:
            shown = "" if "@" in text else f"={nodes.value!r}"  # it may be a password
            raise ConfigError(f"{nodes.path}{shown} must be {form}, an IPv6 address in brackets")
        whole(int(node["port"]), field=f"{nodes.path}: the port", low=1, high=65535)
        addresses.append(f"{scheme}://{text}")
    if not addresses:
        raise ConfigError(f"{nodes.path}={nodes.value!r} names no server: {form}")
    _put(result, "address", Given(addresses, nodes.path, nodes.value))


def _eviction_fields(eviction: Given) -> dict[str, Given]:
    fields = given(eviction.value, eviction.path)
    refuse_unknown(fields, _EVICTION_FIELDS)
    if "eviction_policy" not in fields:
        raise ConfigError(
            f"{eviction.path}.eviction_policy is missing: it is one of {', '.join(_POLICIES)}"
        )
    policy = fields["eviction_policy"]
    choice(policy.value, field=policy.path, choices=tuple(_POLICIES))
    for name in _EVICTION_FIELDS[1:]:
        if name in fields:
            share = fit(fields[name], Field((float,), None))
            number(share, field=fields[name].path, low=0, high=1)
    return fields


def _spread_eviction(eviction: Given | None, result: dict[str, Given]) -> None:
    """L1 has these settings itself."""
    if eviction is not None:
        fields = _eviction_fields(eviction)
        policy = fields["eviction_policy"]
        fields["eviction_policy"] = Given(_POLICIES[policy.value], policy.path, policy.value)
        for name, item in fields.items():
            _put(result, name, item)


def _judge_eviction(eviction: Given | None, result: dict[str, Given], notes: Notes) -> None:
    """Say what becomes of a tier's eviction: ours keep their capacity, by least recent use."""
    capacity = result.get("capacity")
    is_foreign = capacity is not None and capacity.name == "max_capacity_gb"
    if eviction is None:
        if is_foreign and capacity is not None:
            del result["capacity"]
            notes.warnings.append(
                f"{capacity.path} without an eviction object has no effect, as with LMCache: "
                "give capacity for a limit"
            )
        return
    fields = _eviction_fields(eviction)
    policy = fields["eviction_policy"]
    notes.unused += [fields[name].path for name in _EVICTION_FIELDS[1:] if name in fields]
    if policy.value == "noop":
        if capacity is not None:
            if not is_foreign:
                raise ConfigError(f"{policy.path}='noop' contradicts {capacity.path}: drop one")
            del result["capacity"]
    elif capacity is None:
        notes.warnings.append(f"{eviction.path} has no effect without a capacity above 0")
    elif policy.value != "LRU":
        notes.warnings.append(
            f"{policy.path}={policy.value!r}: this tier evicts what was used least recently, "
            "whosever it is"
        )
