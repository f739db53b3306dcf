"""A real cluster of servers on the loopback interface, whose nodes fail and whose slots move."""

from __future__ import annotations

import binascii
import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Self

import attrs

from tieredkv.testing.valkey.connection import ReplyError
from tieredkv.testing.valkey.server import BUS_OFFSET, HOST, Option, ValkeyServer, free_port

__all__ = ["NUM_SLOTS", "ValkeyCluster", "key_slot"]

NUM_SLOTS: Final = 16_384


class ValkeyCluster:
    """Primaries that share the slots evenly, and replicas of each. Ready in about two seconds.

    A context manager; or `start` and `stop`. The nodes end with this process, however that ends.
    A primary that does not answer for ``node_timeout_ms`` is replaced by a replica; then `repair`
    brings all nodes back, with other roles than before.

    Args:
        num_primaries: At least three: a majority has to agree on a failure.
        replicas_per_primary: 0 for none.
        node_timeout_ms: When a silent node counts as failed.
        password: Of all nodes.
        options: More of ``valkey.conf``, for every node.
        node: Makes a node from `port`, `password` and `options`; for TLS a partial `TLSServer`.

    Raises:
        RuntimeError: `start`: a node has ended or the cluster has not come up in time.
    """

    def __init__(
        self,
        *,
        num_primaries: int = 3,
        replicas_per_primary: int = 1,
        node_timeout_ms: int = 1000,
        password: str | None = None,
        options: Mapping[str, Option] = MappingProxyType({}),
        node: Callable[..., ValkeyServer] = ValkeyServer,
    ) -> None:
        self._num_primaries = num_primaries
        settings: dict[str, Option] = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": node_timeout_ms,
            "cluster-replica-validity-factor": 0,  # a replica always stands for election
            "repl-diskless-sync-delay": 0,
            **({} if password is None else {"primaryauth": password}),
            **options,
        }
        ports = _different_ports(num_primaries * (1 + replicas_per_primary))
        self.nodes: tuple[ValkeyServer, ...] = tuple(
            node(
                port=port,
                password=password,
                options={**settings, "cluster-port": port + BUS_OFFSET},
            )
            for port in ports
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Address of the first node."""
        return self.nodes[0].url

    @property
    def urls(self) -> list[str]:
        """Addresses of all nodes."""
        return [node.url for node in self.nodes]

    def start(self, *, timeout_s: float = 30.0) -> None:
        """Start the nodes and join them; the cluster serves every slot when this returns."""
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_until_ready(timeout_s=timeout_s)
            self._join(timeout_s)
            self.wait_until_healthy(timeout_s=timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all nodes and remove their files; twice is fine."""
        for node in self.nodes:
            node.stop()

    def primaries(self) -> list[ValkeyServer]:
        """Return the nodes that hold slots, as one that runs sees it."""
        members = self._members()
        return [node for node in self.nodes if members[node.port].slots]

    def primary_of(self, key: str | bytes) -> ValkeyServer:
        """Return the node that holds a key's slot, as a node that runs sees it.

        Raises:
            LookupError: No node holds it.
        """
        slot = key_slot(key)
        members = self._members()
        for node in self.nodes:
            if any(slot in slots for slots in members[node.port].slots):
                return node
        raise LookupError(f"no node holds slot {slot}")

    def replicas_of(self, primary: ValkeyServer) -> list[ValkeyServer]:
        """Return the replicas of a primary, as a node that runs sees it."""
        members = self._members()
        identity = members[primary.port].identity
        return [node for node in self.nodes if members[node.port].replica_of == identity]

    def repair(self, *, timeout_s: float = 60.0) -> None:
        """Resume and restart the nodes that need it, and wait until the cluster is healthy."""
        for node in self.nodes:
            if node.paused:
                node.resume()
            elif not node.running:
                node.start(timeout_s=timeout_s)
        self.wait_until_healthy(timeout_s=timeout_s)

    def wait_until_healthy(self, *, timeout_s: float = 30.0) -> None:
        """Wait until all nodes agree that every slot is served and every replica is up to date.

        Raises:
            RuntimeError: They do not within ``timeout_s``; with the view of each node.
        """
        self.wait_for(self._is_healthy, timeout_s)

    def move_slots(
        self, first: int, last: int, to: ValkeyServer, *, timeout_s: float = 30.0
    ) -> None:
        """Move a range of slots of one primary with all keys to another primary.

        At once, as Valkey 9 does it (``CLUSTER MIGRATESLOTS``): the old node serves all until the
        new one serves all.

        Args:
            first: First slot.
            last: Last slot, included.
            to: A primary.
            timeout_s: Until all nodes know.

        Raises:
            ReplyError: The slots are not of one primary, or already there.
            RuntimeError: Not done in time.
        """
        source = self._holder(first)
        identity = self._members()[to.port].identity
        source.command(
            *("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", identity),
            timeout_s=timeout_s,
        )

        def moved() -> bool:
            return all(
                any(first in slots and last in slots for slots in view[to.port].slots)
                for view in map(self._view_of, self.nodes)
            )

        self.wait_for(moved, timeout_s)

    @contextlib.contextmanager
    def half_moved_slot(
        self, slot: int, to: ValkeyServer, keys: Sequence[str | bytes]
    ) -> Iterator[None]:
        """Hold a slot in the middle of a classic migration, with some of its keys moved already.

        Meanwhile the old node answers ASK for those, and TRYAGAIN to a command that needs keys of
        both sides; on exit the others follow.

        Args:
            slot: One slot.
            to: A primary that does not have it.
            keys: Keys of the slot that are to be on the other side.

        Raises:
            ReplyError: The slot is there already, or a key cannot be moved.
        """
        source = self._holder(slot)
        members = self._members()
        new, old = members[to.port].identity, members[source.port].identity
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", old)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", new)
        try:
            self._move_keys(source, to, keys)
            yield
        finally:
            while rest := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                self._move_keys(source, to, rest)
            for node in (to, source, *self.primaries()):
                node.command("CLUSTER", "SETSLOT", slot, "NODE", new)
            self.wait_until_healthy()

    def _move_keys(
        self, source: ValkeyServer, to: ValkeyServer, keys: Iterable[str | bytes]
    ) -> None:
        login = () if to.password is None else ("AUTH", to.password)
        for key in keys:
            source.command("MIGRATE", HOST, to.port, key, 0, 10_000, *login)

    def _join(self, timeout_s: float) -> None:
        identities = [node.command("CLUSTER", "MYID") for node in self.nodes]
        primaries = self.nodes[: self._num_primaries]
        bounds = [NUM_SLOTS * part // len(primaries) for part in range(len(primaries) + 1)]
        for node, (first, end) in zip(primaries, itertools.pairwise(bounds), strict=True):
            node.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for epoch, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for one, other in itertools.combinations(self.nodes, 2):  # all pairs: no gossip to wait for
            one.command("CLUSTER", "MEET", HOST, other.port, other.port + BUS_OFFSET)
        self.wait_for(self._is_meshed, timeout_s)
        for number, node in enumerate(self.nodes[len(primaries) :]):
            primary = identities[number % len(primaries)]
            self.wait_for(_accepted(node, "CLUSTER", "REPLICATE", primary), timeout_s)

    def _is_meshed(self) -> bool:
        return all(
            len(view) == len(self.nodes)
            and not any("handshake" in member.flags for member in view.values())
            for view in map(self._view_of, self.nodes)
        )

    def _is_healthy(self) -> bool:
        if not all(map(_serves_all_slots, self.nodes)):
            return False
        views = [self._view_of(node) for node in self.nodes]
        return all(_is_complete(view, self.nodes) for view in views) and all(
            _layout(view) == _layout(views[0]) for view in views
        )

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until a condition holds, looking every 10 ms.

        Raises:
            RuntimeError: It does not within `timeout_s`; with the view of each node.
        """
        ends = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > ends:
                views = "\n".join(
                    f"{node!r}\n{node.command('CLUSTER', 'NODES').decode()}"
                    for node in self.nodes
                    if node.running
                )
                raise RuntimeError(
                    f"{self!r} is not where it should be after {timeout_s} s\n{views}"
                )
            time.sleep(0.01)

    def _members(self) -> dict[int, _Member]:
        for node in self.nodes:
            if node.running:
                return self._view_of(node)
        raise RuntimeError(f"no node of {self!r} runs")

    def _view_of(self, node: ValkeyServer) -> dict[int, _Member]:
        lines = node.command("CLUSTER", "NODES").decode().splitlines()
        return {member.port: member for member in map(_Member.parse, lines)}

    def _holder(self, slot: int) -> ValkeyServer:
        members = self._members()
        return next(
            node for node in self.nodes if any(slot in slots for slots in members[node.port].slots)
        )


@attrs.frozen
class _Member:
    """A line of ``CLUSTER NODES``."""

    identity: str
    port: int
    flags: frozenset[str]
    replica_of: str | None
    linked: bool
    slots: tuple[range, ...]

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read ``id host:port@bus flags primary ping pong epoch link slot...``."""
        identity, address, flags, primary, _, _, _, link, *slots = line.split()
        bounds = [word.split("-") for word in slots if not word.startswith("[")]
        return cls(
            identity=identity,
            port=int(address.partition("@")[0].rpartition(":")[2]),
            flags=frozenset(flags.split(",")),
            replica_of=None if primary == "-" else primary,
            linked=link == "connected",
            slots=tuple(range(int(bound[0]), int(bound[-1]) + 1) for bound in bounds),
        )


def key_slot(key: str | bytes) -> int:
    """Return the slot of a key; of what is between its first braces, if that is not empty.

    Source: https://valkey.io/topics/cluster-spec/ (CRC-16/XMODEM of the key, modulo 16384).
    """
    name = key.encode() if isinstance(key, str) else key
    tag, closed, _ = name.partition(b"{")[2].partition(b"}")
    return binascii.crc_hqx(tag if tag and closed else name, 0) % NUM_SLOTS


def _different_ports(count: int) -> set[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return ports


def _accepted(node: ValkeyServer, *command: str | bytes) -> Callable[[], bool]:
    """Return a condition: the node takes a command that it refuses for a while."""

    def accepted() -> bool:
        try:
            node.command(*command)
        except ReplyError:
            return False
        return True

    return accepted


def _serves_all_slots(node: ValkeyServer) -> bool:
    return b"cluster_state:ok" in node.command("CLUSTER", "INFO")


def _is_complete(view: Mapping[int, _Member], nodes: Sequence[ValkeyServer]) -> bool:
    """Whether all are there, without failures, and the replicas have what the primaries have."""
    return all(
        node.port in view
        and not any("fail" in flag for flag in view[node.port].flags)
        and (
            bool(view[node.port].slots)
            or node.info("replication").get("master_link_status") == "up"
        )
        for node in nodes
    )


def _layout(view: Mapping[int, _Member]) -> dict[int, object]:
    return {port: (member.slots, member.replica_of) for port, member in view.items()}
