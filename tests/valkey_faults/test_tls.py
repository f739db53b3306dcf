"""TLS: who is trusted, and that nothing else is spoken instead."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.calls import get, put
from tests.valkey_faults.calls import backend_at, opened
from tieredkv.backends import TLS
from tieredkv.errors import ConfigError, TierError, TierUnavailableError
from tieredkv.results import PutStatus
from tieredkv.testing.load import Load
from tieredkv.testing.valkey import (
    Certificates,
    TLSProgram,
    TLSServer,
    ValkeyCluster,
    ValkeyServer,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tls_program: TLSProgram, certificates: Certificates) -> Iterator[TLSServer]:
    """A server with a good certificate."""
    with TLSServer(tls_program, certificates) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(tls_program: TLSProgram, certificates: Certificates) -> Iterator[TLSServer]:
    """A server that wants to see a certificate of its clients, too."""
    with TLSServer(tls_program, certificates, require_client_certificate=True) as running:
        yield running


@pytest.fixture(scope="module")
def doubtful(tls_program: TLSProgram, certificates: Certificates) -> Iterator[dict[str, TLSServer]]:
    """Servers that nobody should trust."""
    servers = {
        "expired": TLSServer(tls_program, certificates, certificate=certificates.expired),
        "foreign": TLSServer(tls_program, certificates, certificate=certificates.foreign_server),
        "wrong host": TLSServer(tls_program, certificates, certificate=certificates.wrong_host),
    }
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.stop()


async def _refusal(address: str, tls: TLS | None, **options: Any) -> TierError:
    """Return why a backend does not open."""
    with pytest.raises(TierError) as caught:
        await backend_at(address, tls=tls, **options).open()
    return caught.value


async def _works(address: str, tls: TLS | None) -> None:
    async with opened(address, tls=tls) as backend:
        assert (await put(backend, "name", b"value")).status is PutStatus.STORED
        assert await get(backend, "name", 5) == b"value"


@pytest.fixture(scope="module")
def secret_cluster(tls_program: TLSProgram, certificates: Certificates) -> Iterator[ValkeyCluster]:
    """A Cluster that speaks TLS within, too."""
    with ValkeyCluster(
        replicas_per_primary=0,
        options={"tls-cluster": "yes"},
        node=partial(TLSServer, tls_program, certificates),
    ) as running:
        yield running


async def test_a_cluster_of_a_private_authority(
    secret_cluster: ValkeyCluster, certificates: Certificates
) -> None:
    names = [f"name-{number}" for number in range(12)]
    address = secret_cluster.url
    async with opened(address, tls=TLS(ca=certificates.ca), mode="cluster") as backend:
        load = Load(backend, names=names)
        assert await load.write(names) == names
        assert await load.read(names) == names
    assert {secret_cluster.primary_of(name) for name in names} == {*secret_cluster.nodes}
    error = await _refusal(address, None, mode="cluster")
    assert "certificate" in str(error)


async def test_a_server_of_a_private_authority(
    server: TLSServer, certificates: Certificates
) -> None:
    await _works(server.url, TLS(ca=certificates.ca))
    error = await _refusal(server.url, None)
    assert not isinstance(error, TierUnavailableError), "waiting does not help"
    assert "certificate" in error.reason


@pytest.mark.parametrize("defect", ["expired", "foreign", "wrong host"])
async def test_a_doubtful_server_is_refused_and_the_defect_named(
    doubtful: dict[str, TLSServer],
    certificates: Certificates,
    defect: Literal["expired", "foreign", "wrong host"],
) -> None:
    error = await _refusal(doubtful[defect].url, TLS(ca=certificates.ca))
    assert not isinstance(error, TierUnavailableError), "waiting does not help"
    said = {"expired": "expired", "foreign": "issuer", "wrong host": "name"}[defect]
    assert said in error.reason.lower()
    assert "certificate" in error.reason
    assert doubtful[defect].command("DBSIZE") == 0


@pytest.mark.parametrize("defect", ["expired", "foreign", "wrong host"])
async def test_a_doubtful_server_is_taken_by_those_who_say_so(
    doubtful: dict[str, TLSServer], defect: str
) -> None:
    await _works(doubtful[defect].url, TLS(insecure=True))
    doubtful[defect].command("FLUSHALL")


async def test_a_client_shows_its_certificate(
    mutual: TLSServer, certificates: Certificates
) -> None:
    client = certificates.client
    await _works(mutual.url, TLS(ca=certificates.ca, cert=client.cert, key=client.key))


async def test_a_client_without_the_right_certificate_is_turned_away(
    mutual: TLSServer, certificates: Certificates
) -> None:
    foreign = certificates.foreign_client
    await _refusal(mutual.url, TLS(ca=certificates.ca))
    await _refusal(mutual.url, TLS(ca=certificates.ca, cert=foreign.cert, key=foreign.key))


async def test_a_key_of_another_certificate_is_refused(
    mutual: TLSServer, certificates: Certificates
) -> None:
    tls = TLS(ca=certificates.ca, cert=certificates.client.cert, key=certificates.server.key)
    with pytest.raises(ConfigError, match="certificate in PEM and its key"):
        await backend_at(mutual.url, tls=tls).open()


async def test_a_renewed_certificate_is_read_again(
    mutual: TLSServer, certificates: Certificates, tmp_path: Path
) -> None:
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    tls = TLS(ca=certificates.ca, cert=cert, key=key)
    shutil.copy(certificates.foreign_client.cert, cert)
    shutil.copy(certificates.foreign_client.key, key)
    backend = backend_at(mutual.url, tls=tls)
    with pytest.raises(TierError):
        await backend.open()
    shutil.copy(certificates.client.cert, cert)
    shutil.copy(certificates.client.key, key)
    await backend.open()
    await backend.aclose()


async def test_nothing_but_tls_is_spoken_when_it_is_asked_for(certificates: Certificates) -> None:
    with ValkeyServer() as plain:
        before = plain.info("commandstats").keys()
        for tls in (TLS(ca=certificates.ca), TLS(insecure=True)):
            address = plain.url.replace("valkey:", "valkeys:")
            await _refusal(address, tls, connect_timeout_s=0.2)
        assert plain.info("commandstats").keys() - before == {"cmdstat_info"}  # ours


async def test_a_plain_client_is_turned_away_by_a_server_with_tls(server: TLSServer) -> None:
    await _refusal(server.url.replace("valkeys:", "valkey:"), None)
