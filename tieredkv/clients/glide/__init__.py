"""valkey-glide-sync, tamed; the package itself is imported with the first connection."""

from tieredkv.clients.glide.client import OwnedClient
from tieredkv.clients.glide.failures import ClientError, Kind
from tieredkv.clients.glide.settings import ClientSettings, Node
from tieredkv.clients.glide.topology import Topology
from tieredkv.clients.glide.vendor import keep_off_stdout

__all__ = [
    "ClientError",
    "ClientSettings",
    "Kind",
    "Node",
    "OwnedClient",
    "Topology",
    "keep_off_stdout",
]
