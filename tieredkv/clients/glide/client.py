"""One client with one owner: commands for values, by key, in the thread that has it now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

import attrs

from tieredkv.clients.glide.failures import ClientError, Kind, translate
from tieredkv.clients.glide.settings import ClientSettings
from tieredkv.clients.glide.topology import Topology
from tieredkv.clients.glide.vendor import connect
from tieredkv.errors import TieredKVError, without_frames

__all__ = ["OwnedClient"]

ResultT = TypeVar("ResultT")

RENEW_AFTER_S: Final = 5.0
"""A Cluster's client is made anew when it has failed for so long; it heals most by itself."""

_LONGEST_TURN_S: Final = 1.0

_RENEW_AT_ONCE: Final = frozenset({Kind.AUTH, Kind.READONLY, Kind.HANDSHAKE})
_OUTAGES: Final = frozenset({Kind.TIMEOUT, Kind.CONNECTION})


class OwnedClient:
    """A connection that is used by one thread at a time and closed by its owner.

    It connects when it is made. After a failure that the vendor's client keeps to itself (a server
    that was lost says nothing but "timed out", and a changed password is never noticed), the next
    command begins with a new connection, which fails at once and with the true cause, or works.

    Not thread-safe: the vendor's ``close`` beside a command that begins corrupts memory.
    """

    def __init__(self, settings: ClientSettings) -> None:
        """Connect. Blocks for the connect timeout at most.

        Raises:
            ClientError: It cannot be done.
            ConfigError: A certificate or key cannot be used.
            MissingDependencyError: The vendor's package is absent or unfit.
        """
        self._settings = settings
        self._client: Any = None
        self._failing_since = self._failed_last = -math.inf
        self._is_stale = False
        self.topology: Topology = Topology()
        self._client = self._new(settings.connect_timeout_ms)

    # -- values ----------------------------------------------------------------------------------

    def get_into(self, key: bytes, buffer: memoryview) -> int | None:
        """Read a value into a buffer that is not empty; return its size, None if it is absent.

        Raises:
            ClientError: TOO_SMALL: the value is larger, nothing was written; or another failure.
        """
        return _written(self._call(lambda client: client.get(key, buffer=buffer)))

    def get_many_into(
        self, keys: Sequence[bytes], buffers: Sequence[memoryview]
    ) -> list[int | ClientError | None]:
        """Read values into buffers, none of them empty; sizes as in `get_into`.

        A buffer holds its value if, and only if, the size is the buffer's. A standalone server is
        asked with one MGET, which fails as a whole if one value is too large. A Cluster gets a
        pipeline of GETs: MGET would be cut by slot, and fails while a slot moves.

        Raises:
            ClientError: All of it failed.
        """
        if not self._settings.cluster:
            replies = self._call(lambda client: client.mget(list(keys), buffers=list(buffers)))
            return [
                int(reply) if type(reply) is bytes and reply.isdigit() else _written(reply)
                for reply in replies
            ]
        return [
            _landed(reply, buffer)
            for reply, buffer in zip(
                self._pipeline(lambda batch: [batch.get(key) for key in keys]),
                buffers,
                strict=True,
            )
        ]

    def set(self, key: bytes, value: memoryview, ttl_ms: int | None) -> None:
        """Store a value.

        Raises:
            ClientError: TIMEOUT or CONNECTION: it may be stored nevertheless, now or later.
        """
        reply = self._call(lambda client: client.set(key, _argument(value), expiry=_expiry(ttl_ms)))
        if (failure := _acknowledged(reply)) is not None:
            raise failure

    def set_many(
        self, items: Sequence[tuple[bytes, memoryview, int | None]]
    ) -> list[ClientError | None]:
        """Store values in one pipeline; one answer each, None if stored.

        Raises:
            ClientError: All of it failed, as in `set`.
        """
        # Most have the same: to make one each would take a fifth of the time for small values.
        expiries = {ttl_ms: _expiry(ttl_ms) for ttl_ms in {item[2] for item in items}}
        replies = self._pipeline(
            lambda batch: [
                batch.set(key, _argument(value), expiry=expiries[ttl_ms])
                for key, value, ttl_ms in items
            ]
        )
        return [_acknowledged(reply) for reply in replies]

    def sizes(self, keys: Sequence[bytes]) -> list[int | ClientError | None]:
        """Return the sizes of values, None where there is none.

        Raises:
            ClientError: All of it failed.
        """
        replies = self._pipeline(lambda batch: [batch.strlen(key) for key in keys])
        found: list[int | ClientError | None] = [_counted(reply) for reply in replies]
        empty = [place for place, size in enumerate(found) if size == 0]
        if empty:  # absent, or of size zero
            there = self._pipeline(lambda batch: [batch.exists([keys[place]]) for place in empty])
            for place, reply in zip(empty, there, strict=True):
                count = _counted(reply)
                found[place] = count if isinstance(count, ClientError) else 0 if count else None
        return found

    def delete(self, keys: Sequence[bytes]) -> list[bool | ClientError]:
        """Delete values; whether there was one, each.

        Raises:
            ClientError: All of it failed.
        """
        replies = self._pipeline(lambda batch: [batch.unlink([key]) for key in keys])
        counts = [_counted(reply) for reply in replies]
        return [count if isinstance(count, ClientError) else count > 0 for count in counts]

    def scan(self, cursor: Any, pattern: bytes, count: int) -> tuple[Any, list[bytes]]:
        """Return the next cursor, None at the end, and some keys; they may come twice.

        Args:
            cursor: None to begin.
            pattern: Glob that the keys match.
            count: How many keys the server looks at.

        Raises:
            ClientError: It failed.
        """
        if self._settings.cluster:
            if cursor is None:
                cursor = import_module("glide_sync").ClusterScanCursor()
            following, keys = self._call(
                lambda client: client.scan(cursor, match=pattern, count=count)
            )
            return (None if following.is_finished() else following), keys
        following, keys = self._call(
            lambda client: client.scan(cursor or b"0", match=pattern, count=count)
        )
        return (None if following == b"0" else following), keys

    # -- the server ------------------------------------------------------------------------------

    def info(self) -> dict[str, dict[str, str]]:
        """Return what the nodes tell of themselves, by address; a standalone server's is ``""``.

        Raises:
            ClientError: It failed.
        """
        if not self._settings.cluster:
            return {"": _fields(self._call(lambda client: client.info()))}
        glide: Any = import_module("glide_sync")
        replies = self._call(lambda client: client.info(route=glide.AllNodes()))
        return {node.decode(): _fields(text) for node, text in replies.items()}

    def largest_bytes(self) -> int | None:
        """Return the server's ``proto-max-bulk-len``; None if it does not say.

        Raises:
            ClientError: It failed.
        """
        reply = self._call(lambda client: client.config_get(["proto-max-bulk-len"]))
        value = reply.get(b"proto-max-bulk-len", b"") if isinstance(reply, dict) else b""
        return int(value) if value.isdigit() else None

    def close(self) -> None:
        """Hang up; twice is fine."""
        if self._client is not None:
            self._client.close()

    # -- how -------------------------------------------------------------------------------------

    def _new(self, timeout_ms: int) -> Any:
        settings = self._settings
        if not settings.cluster:
            return _connected(settings, timeout_ms)
        # The nodes to begin with may be gone by now.
        nodes = tuple(dict.fromkeys((*settings.nodes, *self.topology.nodes)))
        client = _joined(attrs.evolve(settings, nodes=nodes), timeout_ms)
        try:
            slots = _run(lambda: client.custom_command(["CLUSTER", "SLOTS"]))
        except ClientError:
            pass  # not allowed to ask: keys are grouped without regard to nodes
        else:
            self.topology = Topology(slots)
        return client

    def _renew(self) -> None:
        """Connect anew; the old connection is given up only when the new one works."""
        timeout_ms = min(self._settings.connect_timeout_ms, self._settings.request_timeout_ms)
        old, self._client = self._client, self._new(timeout_ms)
        if old is not None:
            old.close()
        self._is_stale = False
        self._failed_last = -math.inf

    def _call(self, command: Callable[[Any], ResultT]) -> ResultT:
        try:
            if self._is_stale:
                self._renew()
            return _run(lambda: command(self._client))
        except ClientError as error:
            self._failed(error.kind)
            raise

    def _pipeline(self, commands: Callable[[Any], object]) -> list[Any]:
        """Send what `commands` puts into a batch; each reply is the server's or a `ClientError`."""

        def send(client: Any) -> list[Any]:
            glide = import_module("glide_sync")
            batch = (glide.ClusterBatch if self._settings.cluster else glide.Batch)(is_atomic=False)
            commands(batch)
            return list(client.exec(batch, raise_on_error=False))

        replies = [
            translate(reply) if isinstance(reply, Exception) else reply
            for reply in self._call(send)
        ]
        for reply in replies:
            if isinstance(reply, ClientError):
                self._failed(reply.kind)
        return replies

    def _hang_up(self) -> None:
        self.close()
        self._client, self._is_stale = None, True

    def _failed(self, kind: Kind) -> None:
        if kind in _OUTAGES:
            # One node's answer does not end another's outage: only a time without failures does.
            now = time.monotonic()
            quiet_s = RENEW_AFTER_S + self._settings.request_timeout_ms / 1000
            if now - self._failed_last > quiet_s:
                self._failing_since = now
            self._failed_last = now
            if not self._settings.cluster:
                self._hang_up()  # the vendor would go on taking in what nobody waits for
            elif now - self._failing_since >= RENEW_AFTER_S:
                self._is_stale = True
        elif kind in _RENEW_AT_ONCE:
            self._is_stale = True


def _connected(settings: ClientSettings, timeout_ms: int) -> Any:
    return _run(lambda: connect(settings, timeout_ms=timeout_ms), creating=True)


def _joined(settings: ClientSettings, timeout_ms: int) -> Any:
    """Connect to a Cluster by the first node that answers, in about half of the time at most.

    The vendor's client waits for the slowest of the nodes it is given, so it is given one by one;
    the whole time, and all nodes, are for when that does not work.
    """
    ends = time.monotonic() + timeout_ms / 1000
    for place, node in enumerate(settings.nodes):
        left_s = max(0.0, ends - time.monotonic())
        share_s = min(_LONGEST_TURN_S, left_s / 2 / (len(settings.nodes) - place))
        try:
            return _connected(attrs.evolve(settings, nodes=(node,)), math.ceil(share_s * 1000))
        except ClientError:
            continue
    left_ms = math.ceil((ends - time.monotonic()) * 1000)
    return _connected(settings, max(left_ms, 1))


def _run(call: Callable[[], ResultT], *, creating: bool = False) -> ResultT:
    """Call the vendor; what it raises ends here, with its frames."""
    try:
        return call()
    except TieredKVError:
        raise
    except Exception as error:  # noqa: BLE001 - anything it raises holds the caller's buffers
        failure = translate(without_frames(error), creating=creating)
    raise failure


def _written(reply: object) -> int | None:
    """Return how many bytes the reply to a read into a buffer says were written."""
    if reply is None:
        return None
    if isinstance(reply, bytes) and reply.isdigit():
        return int(reply)
    raise ClientError(Kind.CLIENT, f"a reply of {type(reply).__name__} where a size belongs")


def _counted(reply: object) -> int | ClientError:
    """Return a reply that is a number of bytes or keys, or why it is none."""
    if isinstance(reply, ClientError):
        return reply
    if type(reply) is int and reply >= 0:
        return reply
    return ClientError(Kind.CLIENT, f"a reply of {type(reply).__name__} where a number belongs")


def _acknowledged(reply: object) -> ClientError | None:
    """Return why a reply does not say that a value is stored; None if it does."""
    if isinstance(reply, ClientError):
        return reply
    if reply == "OK":
        return None
    return ClientError(Kind.CLIENT, f"a reply of {type(reply).__name__} where OK belongs")


def _landed(reply: object, buffer: memoryview) -> int | ClientError | None:
    """Put a value of the right size where it belongs; return its size."""
    if not isinstance(reply, bytes):
        return reply if reply is None or isinstance(reply, ClientError) else _written(reply)
    if len(reply) == buffer.nbytes:
        try:
            buffer[:] = reply
        except (TypeError, ValueError) as error:  # read-only, or of another shape
            return ClientError(Kind.CLIENT, str(error))
    return len(reply)


def _argument(value: memoryview) -> memoryview | bytes:
    return value if value.nbytes else b""


def _expiry(ttl_ms: int | None) -> Any:
    if ttl_ms is None:
        return None
    glide: Any = import_module("glide_sync")
    return glide.ExpirySet(glide.ExpiryType.MILLSEC, ttl_ms)


def _fields(text: bytes) -> dict[str, str]:
    lines = text.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
