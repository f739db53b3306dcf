"""The media of the demo's tiers, each a real one, in temporary places: a directory, servers."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tieredkv.backends import Backend, DiskBackend, HFBucketBackend, ValkeyBackend
from tieredkv.clients.glide import keep_off_stdout

if TYPE_CHECKING:
    from tieredkv.testing.hub import LocalHub
    from tieredkv.testing.valkey import ValkeyServer

__all__ = ["MEDIA", "Medium"]

_BUCKET: Final = "hf://buckets/local/demo/kv"
_NO_VARIABLE: Final = "TIEREDKV_DEMO_HAS_NO_SUCH_VARIABLE"
_HUB_ENVIRONMENT: Final = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "0",
    "NO_PROXY": "127.0.0.1",
    "RUST_LOG": "off",
}


class Medium(ABC):
    """Where one tier keeps its values, as long as `running` lasts.

    Attributes:
        name: Of the tier.
        capacity_bytes: What its values may take.
    """

    name: str

    def __init__(self, directory: Path, capacity_bytes: int) -> None:
        """Set up; nothing is started.

        Args:
            directory: Below it the medium makes what it needs.
            capacity_bytes: What the values may take.
        """
        self.capacity_bytes: int = capacity_bytes
        self._path = directory / self.name

    @contextmanager
    def running(self) -> Iterator[Backend]:
        """Start it, and end it with all that it has left; yields a backend over it, not open.

        Raises:
            click.UsageError: A package is missing.
            click.ClickException: It does not start.
        """
        try:
            backend = self._start()
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            raise click.UsageError(
                f"the tier {self.name} needs {package}: pip install 'tieredkv[testing]'"
            ) from None
        except (OSError, RuntimeError) as error:
            raise click.ClickException(f"the tier {self.name} does not start: {error}") from None
        try:
            yield backend
        finally:
            self._stop()

    def required_bytes(self, contents_bytes: int) -> int:
        """Return how much of the file system it takes when so much is put."""
        return min(self.capacity_bytes, contents_bytes)

    @abstractmethod
    def kill(self) -> None:
        """Take it away from its backend, as a fault would."""

    @abstractmethod
    def restart(self) -> None:
        """Bring it back after `kill`."""

    @abstractmethod
    def _start(self) -> Backend: ...

    @abstractmethod
    def _stop(self) -> None: ...


class Directory(Medium):
    """A directory; when it is killed, a file stands in its place, and the values come back."""

    name = "disk"

    def kill(self) -> None:
        """See `Medium.kill`."""
        self._path.rename(self._aside)
        self._path.touch()

    def restart(self) -> None:
        """See `Medium.restart`."""
        self._path.unlink()
        self._aside.rename(self._path)

    @property
    def _aside(self) -> Path:
        return self._path.with_suffix(".aside")

    def _start(self) -> Backend:
        return DiskBackend(self._path, capacity=self.capacity_bytes, name=self.name)

    def _stop(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


class Server(Medium):
    """A Valkey server that evicts by itself; when it comes back it is empty."""

    name = "valkey"
    _server: ValkeyServer

    def required_bytes(self, contents_bytes: int) -> int:
        """See `Medium.required_bytes`: it is all in memory."""
        return 0

    def kill(self) -> None:
        """See `Medium.kill`."""
        self._server.kill()

    def restart(self) -> None:
        """See `Medium.restart`."""
        self._server.restart()

    def _start(self) -> Backend:
        from tieredkv.testing.valkey import ValkeyServer  # noqa: PLC0415 - an optional extra

        keep_off_stdout()
        self._server = ValkeyServer(maxmemory=self.capacity_bytes, policy="allkeys-lru")
        self._server.start()
        return ValkeyBackend(self._server.url, name=self.name)

    def _stop(self) -> None:
        self._server.stop()


class Hub(Medium):
    """A local Hugging Face Hub with a bucket that takes everything; it comes back as it was."""

    name = "hub"
    _server: LocalHub

    def required_bytes(self, contents_bytes: int) -> int:
        """See `Medium.required_bytes`: nothing is evicted."""
        return contents_bytes

    def kill(self) -> None:
        """See `Medium.kill`."""
        self._server.stop()

    def restart(self) -> None:
        """See `Medium.restart`."""
        self._serve(int(self._server.endpoint.rpartition(":")[2]), self._server.token)

    def _start(self) -> Backend:
        home = self._path / "home"
        # The vendors' packages read this when they are imported: nothing may touch the user's home.
        os.environ.update(_HUB_ENVIRONMENT, HF_HOME=str(home), HF_XET_CACHE=str(home / "xet"))
        self._serve(0, None)
        return HFBucketBackend(
            _BUCKET,
            token=self._server.token,
            token_env=_NO_VARIABLE,
            endpoint=self._server.endpoint,
            create_bucket=True,
            name=self.name,
        )

    def _serve(self, port: int, token: str | None) -> None:
        from tieredkv.testing import hub  # noqa: PLC0415 - the demo over disk goes without

        root = self._path / "root"
        self._server = hub.start(root, process=True, port=port, token=token)

    def _stop(self) -> None:
        self._server.stop()


MEDIA: Final[dict[str, type[Medium]]] = {kind.name: kind for kind in (Directory, Server, Hub)}
"""What `--tiers` may name."""
