"""Certificates for tests with TLS: good ones, and one for each way to be wrong. Needs trustme."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final, Self

import attrs
import trustme

__all__ = ["Certificate", "Certificates"]

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_LONG_AGO: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@attrs.frozen(kw_only=True)
class Certificate:
    """A certificate and its key, as PEM files.

    Attributes:
        cert: Path of the certificate with what lies between it and the authority.
        key: Path of the private key, without a password.
    """

    cert: Path
    key: Path


@attrs.frozen(kw_only=True)
class Certificates:
    """Two authorities that know nothing of each other, and what they have signed.

    Attributes:
        ca: The authority's own certificate, a PEM file.
        server: A server's, for ``localhost``, ``127.0.0.1`` and ``::1``.
        expired: As `server`, but its time is over.
        wrong_host: A server's, for another host.
        client: A client's.
        foreign_ca: The certificate of the other authority.
        foreign_server: As `server`, signed by the other authority.
        foreign_client: A client's, signed by the other authority.
    """

    ca: Path
    server: Certificate
    expired: Certificate
    wrong_host: Certificate
    client: Certificate
    foreign_ca: Path
    foreign_server: Certificate
    foreign_client: Certificate

    @classmethod
    def issue(cls, directory: Path) -> Self:
        """Write new ones below a directory, which is there.

        Raises:
            OSError: They cannot be written.
        """
        ours, foreign = trustme.CA(), trustme.CA()
        ca, foreign_ca = directory / "ca.pem", directory / "foreign-ca.pem"
        ours.cert_pem.write_to_path(str(ca))
        foreign.cert_pem.write_to_path(str(foreign_ca))

        def written(name: str, leaf: trustme.LeafCert) -> Certificate:
            cert, key = directory / f"{name}.pem", directory / f"{name}.key"
            leaf.private_key_pem.write_to_path(str(key))
            cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
            return Certificate(cert=cert, key=key)

        return cls(
            ca=ca,
            server=written("server", ours.issue_cert(*_LOOPBACK)),
            expired=written("expired", ours.issue_cert(*_LOOPBACK, not_after=_LONG_AGO)),
            wrong_host=written("wrong-host", ours.issue_cert("elsewhere.test")),
            client=written("client", ours.issue_cert("client@elsewhere.test")),
            foreign_ca=foreign_ca,
            foreign_server=written("foreign-server", foreign.issue_cert(*_LOOPBACK)),
            foreign_client=written("foreign-client", foreign.issue_cert("client@elsewhere.test")),
        )
