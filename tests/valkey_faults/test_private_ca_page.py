"""The how-to on TLS works as it is written."""

from __future__ import annotations

import pytest

from tests.docs.examples import DOCS, run
from tieredkv.testing.valkey import Certificates, TLSProgram, TLSServer


@pytest.mark.anyio
async def test_its_example_works(tls_program: TLSProgram, certificates: Certificates) -> None:
    with TLSServer(tls_program, certificates, require_client_certificate=True) as server:
        here = {
            "valkeys://cache.example:6379": server.url,
            "/etc/kv/ca.pem": str(certificates.ca),
            "/etc/kv/client.pem": str(certificates.client.cert),
            "/etc/kv/client.key": str(certificates.client.key),
        }
        await run(DOCS / "how-to/private-ca.md", {}, here)
