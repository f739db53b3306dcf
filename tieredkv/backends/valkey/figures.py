"""What INFO says, as figures for a status, and the advice that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["advice", "figures", "serves_cluster", "version_of"]

_EVICTS_NOTHING: Final = "noeviction"

Info = Mapping[str, str]


def version_of(info: Info) -> str:
    """Return what runs there: ``"valkey 9.1.2"``."""
    if version := info.get("valkey_version"):
        return f"valkey {version}"
    return f"redis {info.get('redis_version', 'unknown')}"


def serves_cluster(info: Info) -> bool:
    """Return whether it is a node of a Cluster."""
    return info.get("cluster_enabled") == "1"


def figures(nodes: Mapping[str, Info]) -> dict[str, object]:
    """Return memory, versions and eviction policies; of each node where there are several."""
    infos = list(nodes.values())
    primaries = [info for info in infos if info.get("role") != "slave"]
    told: dict[str, object] = {
        "server_version": ", ".join(sorted({version_of(info) for info in infos})),
        "used_memory_bytes": sum(_number(info, "used_memory") for info in primaries),
        "maxmemory_bytes": sum(_number(info, "maxmemory") for info in primaries),
        "maxmemory_policy": ", ".join(sorted({_policy(info) for info in infos})),
    }
    if "" not in nodes:
        told["node_memory"] = {
            node: {
                "used_memory": _number(info, "used_memory"),
                "maxmemory": _number(info, "maxmemory"),
            }
            for node, info in nodes.items()
        }
    return told


def advice(nodes: Mapping[str, Info], *, capacity: bool, ttl: bool) -> Iterator[str]:
    """Yield what about limits and expiry does not go together."""
    limited = any(_number(info, "maxmemory") for info in nodes.values())
    policies = {_policy(info) for info in nodes.values()}
    evicts = limited and policies != {_EVICTS_NOTHING}
    if capacity and evicts:
        yield (
            "two parties evict: this store (capacity=) and the server (maxmemory-policy "
            f"{', '.join(sorted(policies))}); leave it to one of them, the server as a rule"
        )
    if capacity and ttl:
        yield "ttl_s= expires values in the server, which the counts for capacity= learn late"
    if limited and not evicts and not capacity:
        yield (
            "the server refuses writes when it is full: set maxmemory-policy allkeys-lfu if it is "
            "only a cache, volatile-lfu with ttl_s= if it is shared, or give capacity="
        )


def _policy(info: Info) -> str:
    return info.get("maxmemory_policy", "unknown")


def _number(info: Info, field: str) -> int:
    value = info.get(field, "")
    return int(value) if value.isdigit() else 0
