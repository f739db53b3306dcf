"""Fixtures of the local Hub's tests: running Hubs, the real client, and plain requests."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
import pytest

from tieredkv.testing import hub

# The client reads all this when it is imported: nothing of it may touch the user's home or speak to
# the network. A suite that imports it elsewhere first has to take the same care there.
_HF_HOME = tempfile.mkdtemp(prefix="hub-tests-")
os.environ.update(
    HF_HOME=_HF_HOME,
    HF_XET_CACHE=f"{_HF_HOME}/xet",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    RUST_LOG="off",
)
os.environ.pop("HF_TOKEN", None)

from huggingface_hub import HfApi  # noqa: E402 (after its environment)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the oldest client call what hf_xet deprecates."""
    here = Path(__file__).parent
    allowed = pytest.mark.filterwarnings(r"ignore:hf_xet\..* is deprecated:DeprecationWarning")
    for item in items:
        if here in item.path.parents:
            item.add_marker(allowed)


def pytest_unconfigure() -> None:
    """Remove what the client has kept."""
    shutil.rmtree(_HF_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """A stopped Hub leaves no thread behind."""
    yield
    assert [t.name for t in threading.enumerate() if t.name == "local hub"] == []


@pytest.fixture
def server() -> Iterator[hub.LocalHub]:
    """A Hub in threads of this process."""
    with hub.start() as running:
        yield running


@pytest.fixture(params=["threads", "process", "local CAS"])
def any_server(request: pytest.FixtureRequest) -> Iterator[hub.LocalHub]:
    """A Hub of each kind."""
    cas: hub.CasKind = "local" if request.param == "local CAS" else "http"
    with hub.start(process=request.param == "process", cas=cas) as running:
        yield running


@pytest.fixture
def client() -> Callable[..., HfApi]:
    """The real client of a Hub: of its owner, or with another token (False: none)."""

    def connect(server: hub.LocalHub, token: str | Literal[False] | None = None) -> HfApi:
        return HfApi(endpoint=server.endpoint, token=server.token if token is None else token)

    return connect


@pytest.fixture
def api(server: hub.LocalHub, client: Callable[..., HfApi]) -> HfApi:
    """The real client of `server`, with a bucket ``local/kv``."""
    api = client(server)
    api.create_bucket("local/kv")
    return api


@attrs.frozen
class Answer:
    """What a plain request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body."""
        return json.loads(self.body)


@pytest.fixture
def ask() -> Callable[..., Answer]:
    """Plain requests, each on a connection of its own, for what the real client would hide.

    ``ask(server, method, path, body=None, *, token=None, headers=None)`` sends bytes, or JSON, with
    the owner's token, another one, or none (``""``).
    """

    def send(
        server: hub.LocalHub,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        token = server.token if token is None else token
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None
        connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=30)
        try:
            connection.request(method, path, raw, {**bearer, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    return send
