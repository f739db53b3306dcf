"""Which primary holds which slots, as far as a Cluster has told: a hint for grouping keys.

The vendor's client routes by a map of its own. A hint that is out of date costs speed, not truth.
"""

from __future__ import annotations

import binascii
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tieredkv.clients.glide.settings import Node

__all__ = ["Topology"]

NUM_SLOTS: Final = 16_384


class Topology:
    """Slots by shard, and where the nodes are. Replaced as a whole, so any thread may read it.

    Attributes:
        nodes: All nodes that are known.
    """

    def __init__(self, slots: Sequence[Sequence[object]] = ()) -> None:
        """Take the reply of ``CLUSTER SLOTS``: first slot, last slot, primary, replicas, each."""
        ranges: list[tuple[int, int]] = []
        shards: dict[Node, int] = {}
        nodes: dict[Node, None] = {}
        for first, _, *members in slots:
            described = [_node(member) for member in members]
            nodes.update(dict.fromkeys(node for node in described if node.host))
            if isinstance(first, int) and described:
                ranges.append((first, shards.setdefault(described[0], len(shards))))
        ranges.sort()
        self._starts = [start for start, _ in ranges]
        self._shards = [shard for _, shard in ranges]
        self.nodes: tuple[Node, ...] = tuple(nodes)

    def shard_of(self, key: bytes) -> int:
        """Return the number of the shard that should hold a key; 0 if nothing is known.

        Source: Cluster specification, "Key distribution model": CRC16 (XMODEM) modulo 16384. Keys
        here hold no braces, so there is no hash tag.
        """
        if not self._starts:
            return 0
        slot = binascii.crc_hqx(key, 0) % NUM_SLOTS
        return self._shards[max(0, bisect_right(self._starts, slot) - 1)]


def _node(member: object) -> Node:
    if not isinstance(member, Sequence) or len(member) < 2:
        return Node("", 0)
    host, port = member[0], member[1]
    name = host.decode() if isinstance(host, bytes) else ""
    return Node(name, port if isinstance(port, int) else 0)
