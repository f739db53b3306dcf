"""The options of a connection: checked together, with what the addresses say of them."""

from __future__ import annotations

import logging
import math
import re
from typing import Final, Literal, TypeAlias, TypeVar

from tieredkv.backends.valkey.addresses import Address
from tieredkv.clients.glide.settings import ClientSettings
from tieredkv.config import choice, seconds, whole
from tieredkv.errors import ConfigError
from tieredkv.tls import TLS

__all__ = ["Mode", "ReadFrom", "checked_prefix", "connection_settings"]

Mode: TypeAlias = Literal["standalone", "cluster"]
ReadFrom: TypeAlias = Literal["primary", "prefer_replica"]

_log: Final = logging.getLogger(__name__)

_TAG_FORM: Final = re.compile(r"[!-'*-~]{1,128}")

ResultT = TypeVar("ResultT")


def connection_settings(
    addresses: tuple[Address, ...],
    *,
    mode: Mode,
    user: str | None,
    password: str | None,
    db: int | None,
    tls: TLS | None,
    read_from: ReadFrom,
    request_timeout_s: float,
    connect_timeout_s: float,
    client_name: str | None,
    client_tag: str | None,
) -> ClientSettings:
    """Return how to connect.

    Raises:
        ConfigError: An option is out of range or contradicts another one.
    """
    choice(mode, field="mode", choices=("standalone", "cluster"))
    choice(read_from, field="read_from", choices=("primary", "prefer_replica"))
    first = addresses[0]
    cluster = mode == "cluster"
    nodes = tuple(address.node for address in addresses)
    user = _either("user", _text("user", user), first.user)
    password = _either("password", _text("password", password), first.password)
    db = _either("db", None if db is None else whole(db, field="db", low=0), first.db)
    if user is not None and password is None:
        raise ConfigError(
            f"user={user!r} has no password: give password=, too (any, if the server wants none)"
        )
    if tls is not None and not isinstance(tls, TLS):
        raise ConfigError(f"tls must be a TLS(...), not {type(tls).__name__}")
    if tls is not None and not first.tls:
        raise ConfigError("tls= is given, but the address is without TLS: write valkeys://")
    if cluster and not nodes[0].port:
        raise ConfigError("mode='cluster' needs addresses with ports, not a Unix socket")
    if cluster and db:
        _log.warning("db=%d has no meaning in a Cluster and is ignored", db)
    if not cluster and len(nodes) > 1 and read_from == "primary":
        _log.warning("mode='standalone' uses the first of %d addresses: %s", len(nodes), nodes[0])
        nodes = nodes[:1]
    for field, value in (("client_name", client_name), ("client_tag", client_tag)):
        if value is not None and (not isinstance(value, str) or not _TAG_FORM.fullmatch(value)):
            raise ConfigError(
                f"{field}={value!r} must be 1 to 128 printable ASCII characters without blanks "
                "and parentheses"
            )
    return ClientSettings(
        nodes=nodes,
        cluster=cluster,
        user=user,
        password=password,
        db=None if cluster else db,
        tls=(tls or TLS()) if first.tls else None,
        request_timeout_ms=math.ceil(seconds(request_timeout_s, field="request_timeout_s") * 1000),
        connect_timeout_ms=math.ceil(seconds(connect_timeout_s, field="connect_timeout_s") * 1000),
        prefer_replica=read_from == "prefer_replica",
        client_name=client_name,
        client_tag=client_tag,
    )


def _either(field: str, given: ResultT | None, of_address: ResultT | None) -> ResultT | None:
    if given is not None and of_address is not None and given != of_address:
        raise ConfigError(f"{field} is given twice and differs: in the address and by {field}=")
    return of_address if given is None else given


def _text(field: str, value: object) -> str | None:
    """Return a text, None for an empty one; a wrong value is not shown, it may be a secret."""
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{field} must be a text, not {type(value).__name__}")
    return value or None


def checked_prefix(value: object) -> str:
    """Return a prefix of keys if it can be one.

    Raises:
        ConfigError: It cannot.
    """
    if not isinstance(value, str):
        raise ConfigError(f"key_prefix={value!r} must be a text")
    if "@" in value or any(character in "{}" or ord(character) < 32 for character in value):
        raise ConfigError(
            f"key_prefix={value!r} must not hold @, braces or control characters: @ ends it, and "
            "braces would put all keys on one node of a Cluster"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"key_prefix={value!r} holds a lone surrogate: remove it") from None
    return value
