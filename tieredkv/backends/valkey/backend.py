"""`ValkeyBackend`: values in a Valkey server or Cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio

from tieredkv.backends.base import (
    BackendStatus,
    Capabilities,
)
from tieredkv.backends.valkey.account import Account
from tieredkv.backends.valkey.addresses import parse_addresses
from tieredkv.backends.valkey.figures import advice, figures, serves_cluster
from tieredkv.backends.valkey.options import (
    Mode,
    ReadFrom,
    checked_prefix,
    connection_settings,
)
from tieredkv.backends.valkey.transfers import Transfers
from tieredkv.clients.glide import ClientError, ClientSettings, Kind, OwnedClient, Topology
from tieredkv.config import MiB, Promotion, Size, WriteOn, parse_size, seconds, whole
from tieredkv.errors import (
    ConfigError,
    KeyFormatError,
    StoreClosedError,
    TieredKVError,
)
from tieredkv.keys import ObjectKey
from tieredkv.tasks import Detached
from tieredkv.tls import TLS

__all__ = ["ValkeyBackend"]

_log: Final = logging.getLogger(__name__)

MAX_VALUE_BYTES: Final = 512 * MiB
"""The server's ``proto-max-bulk-len``."""

_STATUS_DEADLINE_S: Final = 1.0


class ValkeyBackend(Transfers):
    """Values in a Valkey (or Redis) server, standalone or Cluster, each under its wire name.

    A key is ``[<key_prefix>@]<wire name>``; its value is what is stored, with nothing around it.
    Small values travel in groups, large ones alone and straight into the memory they are for.

    Every worker has a connection of its own, which keeps memory of about the largest value that it
    has read: `num_workers` such values at most. A Cluster is asked for each key where it is; moved
    slots and new primaries are followed.

    A write that timed out is UNKNOWN: it may be carried out later, after others. What the server
    evicts or expires is a miss. With `read_from="prefer_replica"` a value that was just written may
    be missed for a while.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        mode: Mode = "standalone",
        user: str | None = None,
        password: str | None = None,
        key_prefix: str = "",
        db: int | None = None,
        tls: TLS | None = None,
        read_from: ReadFrom = "primary",
        ttl_s: float | None = None,
        capacity: Size | None = None,
        request_timeout_s: float = 5.0,
        connect_timeout_s: float = 10.0,
        num_workers: int = 8,
        client_name: str | None = None,
        client_tag: str | None = None,
        write_on: WriteOn = "put",
        promotion: Promotion = "always",
        name: str = "valkey",
    ) -> None:
        """Set up; nothing is sent before `open`.

        Args:
            address: ``valkey://[user:password@]host[:port][/db]``, ``valkeys://`` for TLS, or
                ``unix:///path``. A list for a Cluster: any nodes, of which one has to answer.
            mode: ``"cluster"`` for a Valkey Cluster.
            user: Of the server's ACL; with a password only.
            password: Without a user that of the default user.
            key_prefix: Before every key, with an ``@`` between: one for each store that shares the
                server.
            db: Number of the database; standalone only.
            tls: Whom to trust, with ``valkeys://``; None: the system's authorities.
            read_from: ``"prefer_replica"``: read from replicas where there are some; they may lag
                behind what this very process has written.
            ttl_s: The longest that any value lives; the server drops it then.
            capacity: Bytes (or a size string) that values may take, kept by this process, least
                recently used values first to go; for a single writer. None, as a rule: leave it to
                the server (``maxmemory`` with ``maxmemory-policy allkeys-lfu``; on a server that is
                shared, ``volatile-lfu`` and `ttl_s`).
            request_timeout_s: Of one command, or one group of them.
            connect_timeout_s: Of one connection.
            num_workers: Threads, and connections, in use at a time.
            client_name: What the server's ``CLIENT LIST`` calls the connections.
            client_tag: What follows the library's name there; default ``tieredkv:<version>``.
            write_on: When a store writes a value to it; see `Backend`.
            promotion: When what it answers with enters the tiers above; see `Backend`.
            name: How the tier is called.

        Raises:
            ConfigError: A setting is malformed, out of range, or contradicts another one.
        """
        super().__init__(name, num_workers=num_workers, write_on=write_on, promotion=promotion)
        self.key_prefix: str = checked_prefix(key_prefix)
        self.ttl_s: float | None = None if ttl_s is None else seconds(ttl_s, field="ttl_s")
        self.capacity_bytes: int | None = None
        if capacity is not None:
            size = parse_size(capacity, field="capacity")
            self.capacity_bytes = whole(size, field="capacity", low=1)
        self.capabilities: Capabilities = Capabilities(
            persistent=True,
            shared=True,
            listable=True,
            scatter=False,
            native_ttl=True,
            max_value_bytes=min(MAX_VALUE_BYTES, self.capacity_bytes or MAX_VALUE_BYTES),
        )
        self._settings = connection_settings(
            parse_addresses(address),
            mode=mode,
            user=user,
            password=password,
            db=db,
            tls=tls,
            read_from=read_from,
            request_timeout_s=request_timeout_s,
            connect_timeout_s=connect_timeout_s,
            client_name=client_name,
            client_tag=client_tag,
        )
        self._key_head = f"{self.key_prefix}@" if self.key_prefix else ""
        self.has_own_space: bool = bool(self.key_prefix)
        self.has_groups: bool = self._settings.cluster
        self._topology = Topology()
        self._account = Account(self.capacity_bytes or 0)
        self._detached = Detached()
        self._troubles: dict[
            str, tuple[Kind, str]
        ] = {}  # operation → why it failed last, until it succeeds

    @property
    def client_settings(self) -> ClientSettings:
        """How its clients connect; with secrets."""
        return self._settings

    def __repr__(self) -> str:
        nodes = ", ".join(map(str, self._settings.nodes))
        return f"<ValkeyBackend {self.name!r} at {nodes}>"

    async def open(self) -> None:
        """See `Backend.open`."""
        self._troubles.clear()
        self._account = Account(self.capacity_bytes or 0)
        await super().open()
        if self._settings.prefer_replica:
            _log.warning("%s: reads from replicas may miss what was just written", self.name)
        if self.capacity_bytes is not None:
            self._detached.spawn(self._count, self._account)

    async def status(self) -> BackendStatus:
        """See `Backend.status`.

        Details: addresses, ``server_version``, ``used_memory_bytes``, ``maxmemory_bytes`` and
        ``maxmemory_policy``, in a Cluster ``node_memory`` by node, and ``advice`` in words. With a
        `capacity`, ``current_size_bytes``, ``usage_fraction`` (else -1) and ``evicted`` are of this
        process.
        """
        nodes: dict[str, dict[str, str]] = {}
        silent = ""
        began: list[bool] = []

        def ask(client: OwnedClient) -> dict[str, dict[str, str]]:
            began.append(True)
            return client.info()

        try:
            with anyio.fail_after(
                min(_STATUS_DEADLINE_S, self._settings.request_timeout_ms / 1000)
            ):
                nodes = await self._workers.run(ask)
            self._succeeded("status")
        except TimeoutError:  # with all workers busy, their outcomes tell
            silent = (
                f"{self.name}: status: no answer within {_STATUS_DEADLINE_S} s" if began else ""
            )
        except StoreClosedError as error:
            return BackendStatus(is_healthy=False, reason=str(error), details=self._figures({}))
        except Exception as error:  # noqa: BLE001 - mapped, and told
            self._mapped("status", error)
        reason = "; ".join(filter(None, (*(text for _, text in self._troubles.values()), silent)))
        return BackendStatus(is_healthy=not reason, reason=reason, details=self._figures(nodes))

    async def largest_bytes(self) -> int | None:
        """Ask for the server's ``proto-max-bulk-len``; None if it does not say, or must not.

        Raises:
            StoreClosedError: Not open.
        """
        try:
            return await self._workers.run(OwnedClient.largest_bytes)
        except ClientError:  # a right that nothing else needs; outages show elsewhere
            return None

    def _figures(self, nodes: dict[str, dict[str, str]]) -> dict[str, object]:
        settings = self._settings
        details: dict[str, object] = {
            "type": "valkey",
            "mode": "cluster" if settings.cluster else "standalone",
            "addresses": [str(node) for node in settings.nodes],
            "tls": settings.tls is not None,
            "key_prefix": self.key_prefix,
            "num_workers": self._workers.num_workers,
            "max_capacity_bytes": self.capacity_bytes or 0,
            "usage_fraction": -1.0,  # of nothing
        }
        if nodes:
            details.update(figures(nodes))
        elif settings.cluster:
            details["node_memory"] = {}
        if (capacity := self.capacity_bytes) is not None:
            used = self._account.used_bytes
            details.update(
                objects=self._account.count,
                current_size_bytes=used,
                usage_fraction=used / capacity,
                evicted=self._account.evicted,
            )
        details["advice"] = list(
            advice(nodes, capacity=capacity is not None, ttl=self.ttl_s is not None)
        )
        return details

    # -- housekeeping ----------------------------------------------------------------------------

    async def _count(self, account: Account) -> None:
        """Count what is in the server already; meanwhile and if it fails, some is not counted."""
        try:
            with account.counting():
                async for entry in self.list_names():
                    if self.key_prefix or _is_object_key(entry.name):
                        account.found(entry.name, entry.stored_bytes)
            await self._workers.run(lambda client: self._make_room(client, 0))
        except StoreClosedError:
            pass
        except ClientError as error:
            shown = self._mapped("write", error)
            _log.warning("%s: what exceeds the capacity stays: %s", self.name, shown)
        except TieredKVError as error:
            _log.warning("%s: what was there before is not counted: %s", self.name, error)

    # -- in worker threads -----------------------------------------------------------------------

    def _connect(self) -> OwnedClient:
        client = OwnedClient(self._settings)
        self._topology = client.topology
        return client

    def _disconnect(self, client: OwnedClient) -> None:
        client.close()

    def _probe(self, client: OwnedClient) -> None:
        nodes = client.info()
        for info in nodes.values():
            if serves_cluster(info) and not self._settings.cluster:
                raise ConfigError(
                    f"mode='standalone': {self._settings.nodes[0]} is a node of a Cluster: open "
                    "it with mode='cluster'"
                )
        limited = advice(
            nodes, capacity=self.capacity_bytes is not None, ttl=self.ttl_s is not None
        )
        for sentence in limited:
            _log.warning("%s: %s", self.name, sentence)


def _is_object_key(name: str) -> bool:
    try:
        ObjectKey.parse(name)
    except KeyFormatError:
        return False
    return True
