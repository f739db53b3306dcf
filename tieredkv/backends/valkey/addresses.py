"""Addresses: ``valkey://``, ``valkeys://`` and ``unix://``, one or several of one kind.

Messages repeat an address without what stands before its ``@``: that may be a password.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from tieredkv.clients.glide.settings import Node
from tieredkv.config import whole
from tieredkv.errors import ConfigError

__all__ = ["Address", "parse_addresses"]

DEFAULT_PORT: Final = 6379
_FORMS: Final = "valkey://[user:password@]host[:port][/db], valkeys://… (TLS) or unix:///path"


@attrs.frozen
class Address:
    """What one address says.

    Attributes:
        node: Where it is.
        tls: Whether to encrypt.
        user: None where the address names none.
        password: None where the address has none.
        db: None where the address names none.
    """

    node: Node
    tls: bool = False
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    db: int | None = None


def parse_addresses(value: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses, at least one; all with or all without TLS.

    Raises:
        ConfigError: One is out of form, or they do not go together.
    """
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts:
        raise ConfigError(f"address={value!r} must be an address or a list of them: {_FORMS}")
    addresses = tuple(map(_parse, texts))
    first = addresses[0]
    for field in ("tls", "user", "password", "db"):
        if any(getattr(address, field) != getattr(first, field) for address in addresses):
            raise ConfigError(f"address: all must say the same about {field}")
    return addresses


def _parse(text: object) -> Address:
    if not isinstance(text, str):
        raise ConfigError(f"address={text!r} must be a text: {_FORMS}")
    shown = _shown(text)
    if "," in text:
        raise ConfigError(f"address={shown} holds a comma: give several addresses as a list")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ConfigError(f"address={shown} holds a blank or a control character: remove it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its text may repeat the password
        raise ConfigError(
            f"address={shown} cannot be read: the port is 1 to 65535, an IPv6 address stands in "
            f"brackets, and user and password are percent-encoded; {_FORMS}"
        ) from None
    if parts.scheme == "unix":
        return _unix(parts, shown)
    if parts.scheme not in ("valkey", "valkeys"):
        remedy = {"redis": "valkey", "rediss": "valkeys"}.get(parts.scheme)
        raise ConfigError(
            f"address={shown} must begin with {remedy}://"
            if remedy
            else f"address={shown} is not of the form {_FORMS}"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"address={shown} has options after ? or #: give them as arguments")
    if not parts.hostname:
        raise ConfigError(f"address={shown} names no host: {_FORMS}")
    if port == 0:
        raise ConfigError(f"address={shown}: the port must be 1 to 65535")
    host = _host(parts)
    if ":" in host and "[" not in parts.netloc:
        raise ConfigError(
            f"address={shown}: write an IPv6 address in brackets, valkey://[::1]:6379"
        )
    return Address(
        Node(host, port or DEFAULT_PORT),
        parts.scheme == "valkeys",
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        _db(parts.path, shown),
    )


def _host(parts: SplitResult) -> str:
    """Return the host as it was written: a certificate's name has its case, too."""
    place = parts.netloc.rpartition("@")[2]
    return place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]


def _unix(parts: SplitResult, shown: str) -> Address:
    if (
        parts.netloc
        or not parts.path.startswith("/")
        or parts.path == "/"
        or parts.query
        or parts.fragment
    ):
        raise ConfigError(
            f"address={shown} must be unix:// and an absolute path, unix:///run/v.sock"
        )
    return Address(Node(unquote(parts.path), 0))


def _db(path: str, shown: str) -> int | None:
    number = path.removeprefix("/")
    if not number:
        return None
    if not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise ConfigError(f"address={shown}: after the port comes the number of a database, /0")
    return whole(int(number), field="db", low=0)


def _shown(text: str) -> str:
    head, at, tail = text.rpartition("@")
    scheme, colon, _ = head.partition("://")
    return repr(f"{scheme}{colon}…@{tail}" if at and colon else f"…@{tail}" if at else tail)
