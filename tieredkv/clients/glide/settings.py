"""What a connection needs to know; values that are checked already."""

from __future__ import annotations

import attrs

from tieredkv.tls import TLS

__all__ = ["ClientSettings", "Node"]


@attrs.frozen
class Node:
    """Where a server listens.

    Attributes:
        host: Name or address (an IPv6 address without brackets), or the absolute path of a socket.
        port: 0 for a socket.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen(kw_only=True)
class ClientSettings:
    """How to connect.

    Attributes:
        nodes: Where to begin.
        cluster: Whether they are nodes of a Cluster.
        user: For AUTH; None: the default user.
        password: For AUTH; None: no AUTH.
        db: Number of the database, None for 0.
        tls: None: no TLS.
        request_timeout_ms: Of one command or pipeline.
        connect_timeout_ms: Of one connection.
        prefer_replica: Read from replicas where there are some.
        client_name: What the server's CLIENT LIST calls the connection.
        client_tag: What follows the library's name there; None: ``tieredkv:<version>``.
    """

    nodes: tuple[Node, ...]
    cluster: bool
    user: str | None
    password: str | None = attrs.field(repr=False)
    db: int | None
    tls: TLS | None
    request_timeout_ms: int
    connect_timeout_ms: int
    prefer_replica: bool
    client_name: str | None
    client_tag: str | None
