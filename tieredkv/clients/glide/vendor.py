"""The vendor's package: found, fit, and turned into a client of ours.

**No hook at fork.** The vendor's ``create`` registers a hook that keeps every client for ever and
reconnects it in every forked child. `connect` therefore does the rest of what ``create`` does and
leaves the hook out; ``tests/valkey/test_vendor.py`` holds the vendor to the internals used here.
A child of a fork makes clients of its own (`tieredkv.backends._workers.ClientPool`).

**No log on the host's stdout.** With its first client the vendor sets up a log of its own, for the
whole process, that prints warnings to stdout, unless the host has set it up before. `connect` does
so first and for errors only. A host that wants another one calls the vendor's ``Logger.init``
before, or ``Logger.set_logger_config`` at any time. What the core prints to stderr (a line for each
command that failed) cannot be turned off.

**A finite strategy for the first connection.** With the vendor's default a refused port, an unknown
host or a bad certificate all end in "timed out". Reconnecting later goes on for ever in any case.
"""

from __future__ import annotations

import re
import ssl
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tieredkv.clients.glide.settings import ClientSettings
from tieredkv.errors import ConfigError, MissingDependencyError
from tieredkv.tls import TLS
from tieredkv.version import __version__

__all__ = ["connect", "keep_off_stdout", "vendor"]

INSTALL: Final = "pip install 'valkey-glide-sync>=2.6,<3'"

# Retries, first delay in ms, base, jitter in %: a refused port is known in about 130 ms.
_RETRIES: Final = (2, 25, 2, 20)


def vendor() -> Any:
    """Return the vendor's module.

    Raises:
        MissingDependencyError: It is not installed, or not one that this library knows.
    """
    try:
        found = version("valkey-glide-sync")
        module = import_module("glide_sync")
    except (ImportError, PackageNotFoundError) as error:
        raise MissingDependencyError(
            f"the Valkey backend needs valkey-glide-sync ({error}): {INSTALL} "
            "(the package valkey-glide is another one, for asyncio only)"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not (2, 6) <= (int(numbers[1]), int(numbers[2])) < (3, 0):
        raise MissingDependencyError(
            f"valkey-glide-sync {found} is not a version that this library knows: {INSTALL}"
        )
    if not hasattr(module.GlideClient, "_create_core_client"):
        raise MissingDependencyError(
            f"valkey-glide-sync {found} has changed inside, please report it; meanwhile {INSTALL}"
        )
    return module


def keep_off_stdout() -> None:
    """Turn off the vendor's log, which goes to standard output, unless the host has set it up.

    For programs whose output is theirs; lines about failed commands go to standard error anyway.

    Raises:
        MissingDependencyError: See `vendor`.
    """
    glide = vendor()
    glide.Logger.init(glide.LogLevel.OFF)


def connect(settings: ClientSettings, *, timeout_ms: int) -> Any:
    """Return a connected client of the vendor's. Blocks.

    Raises:
        MissingDependencyError: See `vendor`.
        ConfigError: A certificate or key cannot be used.
        Exception: What the vendor raises.
    """
    glide = vendor()
    glide.Logger.init(glide.LogLevel.ERROR)
    configuration, advanced, kind = (
        (
            glide.GlideClusterClientConfiguration,
            glide.AdvancedGlideClusterClientConfiguration,
            glide.GlideClusterClient,
        )
        if settings.cluster
        else (
            glide.GlideClientConfiguration,
            glide.AdvancedGlideClientConfiguration,
            glide.GlideClient,
        )
    )
    config = configuration(
        [
            glide.NodeAddress(node.host, node.port)
            if node.port
            else glide.NodeAddress(unix_socket_path=node.host)
            for node in settings.nodes
        ],
        use_tls=settings.tls is not None,
        credentials=_credentials(glide, settings),
        read_from=glide.ReadFrom.PREFER_REPLICA
        if settings.prefer_replica
        else glide.ReadFrom.PRIMARY,
        request_timeout=settings.request_timeout_ms,
        reconnect_strategy=glide.BackoffStrategy(*_RETRIES),
        database_id=settings.db,
        client_name=settings.client_name,
        client_info_tag=settings.client_tag or f"tieredkv:{__version__}",
        advanced_config=advanced(
            connection_timeout=timeout_ms, tls_config=_tls(glide, settings.tls)
        ),
    )
    client = kind(config)
    client._create_core_client()  # noqa: SLF001 - see the module
    return client


def _credentials(glide: Any, settings: ClientSettings) -> Any:
    if settings.password is None:
        return None
    return glide.ServerCredentials(username=settings.user, password=settings.password)


def _tls(glide: Any, tls: TLS | None) -> Any:
    """Read certificates anew for each connection: they may be renewed on disk."""
    if tls is None:
        return None
    return glide.TlsAdvancedConfiguration(
        use_insecure_tls=tls.insecure or None,
        root_pem_cacerts=_authority(tls.ca) if tls.ca is not None else None,
        **_certificate(tls.cert, tls.key),
    )


def _authority(path: Path) -> bytes:
    try:
        pem = path.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"tls.ca={str(path)!r} is not a PEM file of certificates: {error}"
        ) from None
    return pem


def _certificate(cert: Path | None, key: Path | None) -> dict[str, bytes]:
    if cert is None or key is None:
        return {}

    def no_password() -> str:
        raise ValueError("the key has a password: give it without one")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, no_password)
        return {"client_cert_pem": cert.read_bytes(), "client_key_pem": key.read_bytes()}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tls.cert={str(cert)!r} and tls.key={str(key)!r} are not a certificate in PEM and "
            f"its key: {error}"
        ) from None
