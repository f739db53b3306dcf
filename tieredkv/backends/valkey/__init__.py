"""Values in a Valkey server or Cluster."""

from tieredkv.backends.valkey.backend import ValkeyBackend
from tieredkv.tls import TLS

__all__ = ["TLS", "ValkeyBackend"]
