"""A real server that speaks TLS and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tieredkv.testing.valkey.certificates import Certificate, Certificates
from tieredkv.testing.valkey.programs import TLSProgram
from tieredkv.testing.valkey.server import Option, ValkeyServer

__all__ = ["TLSServer"]


class TLSServer(ValkeyServer):
    """A server whose port takes TLS only. Its own commands go through its Unix socket.

    Args:
        program: From `find_tls_program`.
        certificates: Whose `Certificates.ca` it trusts.
        certificate: What it shows; None: `Certificates.server`.
        port: See `ValkeyServer`.
        require_client_certificate: Turn away clients without a certificate of that authority.
        password: Of the default user.
        options: More of ``valkey.conf``.
    """

    scheme = "valkeys"

    def __init__(
        self,
        program: TLSProgram,
        certificates: Certificates,
        *,
        certificate: Certificate | None = None,
        require_client_certificate: bool = False,
        port: int | None = None,
        password: str | None = None,
        options: Mapping[str, Option] = MappingProxyType({}),
    ) -> None:
        shown = certificates.server if certificate is None else certificate
        self._tls_program = program
        super().__init__(
            port=port,
            password=password,
            unix_socket=True,
            options={
                "tls-cert-file": str(shown.cert),
                "tls-key-file": str(shown.key),
                "tls-ca-cert-file": str(certificates.ca),
                "tls-auth-clients": "yes" if require_client_certificate else "no",
                **options,
            },
        )

    def _program(self) -> Path:
        return self._tls_program.path

    def _environment(self) -> Mapping[str, str]:
        if not self._tls_program.library_path:
            return {}
        return {"LD_LIBRARY_PATH": ":".join(map(str, self._tls_program.library_path))}

    def _settings(self) -> dict[str, Option]:
        return super()._settings() | {"port": 0, "tls-port": self.port}

    def _raw_address(self) -> Path:
        return self.unix_path
