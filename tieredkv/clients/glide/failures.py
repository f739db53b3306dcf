"""What the client's exceptions mean: one table, by the prefix of their text.

The vendor has classes for time-outs and lost connections only; every refusal of the server is a
``RequestError``, either ``<CODE>: <detail>`` or, for codes that its core knows, ``An error was
signalled by the server: - <Kind>: <detail>``.

An exception of the vendor must not outlive the call that raised it: its frames hold buffers of the
caller, and CPython's garbage collector crashes (3.11, 3.12) when it finds them in a cycle. So
`translate` makes an error of ours from its text, and whoever catches one drops its traceback.

Source: ``glide_shared/exceptions.py`` and the texts of valkey-glide-sync 2.6.0.
"""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["ClientError", "Kind", "translate"]


class Kind(enum.Enum):
    """What went wrong."""

    TIMEOUT = enum.auto()
    """No answer in time; the command may be carried out later."""
    CONNECTION = enum.auto()
    """No connection, or it was lost; a command under way may have been carried out."""
    TLS = enum.auto()
    AUTH = enum.auto()
    DENIED = enum.auto()
    FULL = enum.auto()
    READONLY = enum.auto()
    WRONG_TYPE = enum.auto()
    CROSS_SLOT = enum.auto()
    MOVED = enum.auto()
    CLUSTER_DOWN = enum.auto()
    LOADING = enum.auto()
    TRY_AGAIN = enum.auto()
    NO_REPLICAS = enum.auto()
    TOO_SMALL = enum.auto()
    """The value is larger than the buffer."""
    NO_CLUSTER = enum.auto()
    """The server knows of no Cluster, or of one without slots."""
    HANDSHAKE = enum.auto()
    """The server hung up while the connection was set up."""
    REFUSED = enum.auto()
    """Any other refusal by the server."""
    CLIENT = enum.auto()
    """The client itself failed, before anything was sent."""


class ClientError(Exception):
    """A call failed.

    Attributes:
        kind: Why.
        stored_bytes: With TOO_SMALL, the size of the value if the text tells it.
    """

    def __init__(self, kind: Kind, text: str, *, stored_bytes: int | None = None) -> None:
        super().__init__(text)
        self.kind: Kind = kind
        self.stored_bytes: int | None = stored_bytes


_CODES: Final = {
    "oom": Kind.FULL,
    "noauth": Kind.AUTH,
    "wrongpass": Kind.AUTH,
    "authenticationfailed": Kind.AUTH,
    "noperm": Kind.DENIED,
    "permissiondenied": Kind.DENIED,
    "readonly": Kind.READONLY,
    "wrongtype": Kind.WRONG_TYPE,
    "crossslot": Kind.CROSS_SLOT,
    "moved": Kind.MOVED,
    "ask": Kind.MOVED,
    "clusterdown": Kind.CLUSTER_DOWN,
    "masterdown": Kind.CLUSTER_DOWN,
    "loading": Kind.LOADING,
    "busyloadingerror": Kind.LOADING,
    "tryagain": Kind.TRY_AGAIN,
    "busy": Kind.TRY_AGAIN,
    "noreplicas": Kind.NO_REPLICAS,
}
_CODE: Final = re.compile(r"(?:An error was signalled by the server:? ?-? ?)?([A-Za-z]+)\b")
_TOO_SMALL: Final = re.compile(r"exceeds buffer capacity(?:.*value is (\d+) bytes)?")

# Texts within what the creation of a client raises, first match wins.
_CREATION: Final = (
    (re.compile(r"certificate|KeyMismatch|InvalidClientConfig|HandshakeFailure|TLS"), Kind.TLS),
    (re.compile(r"WRONGPASS|NOAUTH|AuthenticationFailed"), Kind.AUTH),
    (re.compile(r"PermissionDenied|NOPERM"), Kind.DENIED),
    (re.compile(r"LOADING|BusyLoading"), Kind.LOADING),
    (re.compile(r"CLUSTERDOWN|ClusterDown"), Kind.CLUSTER_DOWN),
    (re.compile(r"No primary node found"), Kind.READONLY),
    (re.compile(r"No topology views found- ResponseError"), Kind.NO_CLUSTER),
    (re.compile(r"unexpectedly terminated"), Kind.HANDSHAKE),
    (re.compile(r"timed? ?out", re.IGNORECASE), Kind.TIMEOUT),
    (re.compile(r"IoError|os error|lookup|refused", re.IGNORECASE), Kind.CONNECTION),
)


def translate(error: BaseException, *, creating: bool = False) -> ClientError:
    """Return what an exception of the vendor means; keeps nothing of it but its text.

    Args:
        error: What a call raised, or an element of a pipeline's reply.
        creating: Whether it was raised while connecting.
    """
    text = " ".join(str(error).split())  # one line
    name = type(error).__name__
    if creating and name == "ClosingError":
        kind = next((kind for form, kind in _CREATION if form.search(text)), Kind.REFUSED)
        return ClientError(kind, text)
    if name == "TimeoutError":
        return ClientError(Kind.TIMEOUT, text)
    if name in ("ConnectionError", "ClosingError", "CircuitBreakerError"):
        return ClientError(Kind.CONNECTION, text)
    if name == "RequestError":
        if found := _TOO_SMALL.search(text):
            return ClientError(
                Kind.TOO_SMALL, text, stored_bytes=int(found[1]) if found[1] else None
            )
        code = _CODE.match(text)
        kind = _CODES.get(code[1].lower(), Kind.REFUSED) if code else Kind.REFUSED
        return ClientError(kind, text)
    return ClientError(Kind.CLIENT, f"{name}: {text}")
