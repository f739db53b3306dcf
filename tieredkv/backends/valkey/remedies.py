"""What a user reads of a failure: what it was and what to do."""

from __future__ import annotations

from typing import Final

from tieredkv.clients.glide.failures import ClientError, Kind
from tieredkv.errors import TierError, TierFullError, TierUnavailableError

__all__ = ["PER_KEY", "tier_error"]

PER_KEY: Final = frozenset({Kind.WRONG_TYPE, Kind.TOO_SMALL, Kind.CLIENT})
"""Failures that say nothing about the health of the server."""

_REMEDIES: Final = {
    Kind.TIMEOUT: "no answer in time",
    Kind.CONNECTION: "there is no connection",
    Kind.TLS: "TLS failed: check both sides' certificates and the host name; see tls=TLS(...)",
    Kind.AUTH: "the server refuses user or password: correct user= and password=",
    Kind.DENIED: "the ACL user lacks a right: grant +get +mget +set +strlen +exists +unlink +scan "
    "+info, in a Cluster +cluster +ping, and its keys",
    Kind.FULL: "the server has no memory left: raise its maxmemory, or set a maxmemory-policy "
    "that evicts",
    Kind.READONLY: "the server is a replica, which takes no writes: give the primary's address",
    Kind.WRONG_TYPE: "under this key is no value of ours: give the store a key_prefix of its own",
    Kind.CROSS_SLOT: "the server is a node of a Cluster: open it with mode='cluster'",
    Kind.MOVED: "the server is a node of a Cluster: open it with mode='cluster'",
    Kind.NO_CLUSTER: "the server is no node of a Cluster that has slots: if it is to stand alone, "
    "leave out mode='cluster'",
    Kind.CLUSTER_DOWN: "the Cluster does not serve this key now: it recovers when its nodes do",
    Kind.LOADING: "the server is still loading its data: it answers when that is done",
    Kind.TRY_AGAIN: "the server is busy with a script or a moving slot: try again",
    Kind.NO_REPLICAS: "too few replicas are connected (min-replicas-to-write): nothing was written",
    Kind.HANDSHAKE: "the server hung up at once: does it want TLS (valkeys://) or a client "
    "certificate, or has it reached its maxclients?",
}
_SILENT: Final = (
    "no answer in time: does it listen there, with TLS (valkeys://) or without, and is it a node "
    "of a Cluster just if mode='cluster'?"
)
_UNAVAILABLE: Final = frozenset({Kind.TIMEOUT, Kind.CONNECTION})
_HEALS: Final = frozenset({Kind.LOADING, Kind.CLUSTER_DOWN, Kind.TRY_AGAIN})


def tier_error(tier: str, operation: str, error: ClientError) -> TierError:
    """Return the tier's error for a client's."""
    remedy = _REMEDIES.get(error.kind)
    if error.kind is Kind.TIMEOUT and operation == "open":
        remedy = _SILENT
    reason = f"{remedy} ({error})" if remedy else str(error)
    if error.kind is Kind.FULL:
        return TierFullError(tier, operation, reason)
    if error.kind in _UNAVAILABLE or (operation == "open" and error.kind in _HEALS):
        return TierUnavailableError(tier, operation, reason)
    return TierError(tier, operation, reason)
