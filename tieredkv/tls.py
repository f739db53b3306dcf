"""`TLS`: how to encrypt a connection, and whom to trust."""

from __future__ import annotations

from pathlib import Path

import attrs

from tieredkv.config import boolean, checked
from tieredkv.errors import ConfigError
from tieredkv.paths import home_expanded

__all__ = ["TLS"]


def _path(value: object) -> Path | None:
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{value!r} must be the path of a PEM file")
    return home_expanded(value, field="a PEM file")


@attrs.frozen(kw_only=True)
class TLS:
    """How to encrypt and whom to trust.

    Attributes:
        ca: PEM file of the authorities whose servers are trusted; None: the system's.
        cert: PEM file of the client's certificate, for servers that ask for one, …
        key: … and of its private key, without a password.
        insecure: Accept any certificate. Whoever is on the way can then read and change everything.
    """

    ca: Path | None = attrs.field(default=None, converter=_path)
    cert: Path | None = attrs.field(default=None, converter=_path)
    key: Path | None = attrs.field(default=None, converter=_path)
    insecure: bool = attrs.field(default=False, validator=checked(boolean))

    def __attrs_post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("tls.cert and tls.key go together: give both, or neither")
        if self.insecure and self.ca is not None:
            raise ConfigError("tls.insecure=True makes tls.ca meaningless: give one of them")
