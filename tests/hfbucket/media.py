"""A bucket of a local Hub, with the hooks of kit and state machine: the vendors' own client.

The vendors' client runs in a process of its own: it keeps connections and threads for the life of
its process, and the tests look for what is left behind in theirs.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from tieredkv.backends.hfbucket import HFBucketBackend
from tieredkv.testing import hub

__all__ = ["Buckets", "RawClient"]

_numbers: Final = itertools.count()


class RawClient:
    """`HfApi` in a child process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, *command: Any) -> Any:
        """Run one of the functions below there."""
        self._pipe.send(command)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection) -> None:
    from huggingface_hub import HfApi

    while True:
        try:
            operation, endpoint, token, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_OPERATIONS[operation](HfApi(endpoint=endpoint, token=token), *arguments))
        except Exception as error:  # noqa: BLE001 - raised on the other side
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _create(api: Any, bucket_id: str, is_private: bool) -> None:  # noqa: FBT001 - through a pipe
    api.create_bucket(bucket_id, private=is_private)


def _put(api: Any, bucket_id: str, path: str, value: bytes) -> None:
    api.batch_bucket_files(bucket_id, add=[(value, path)])


_contents: Final[dict[str, bytes]] = {}  # by hash, which decides what the bytes are


def _get(api: Any, bucket_id: str, path: str) -> bytes | None:
    for info in api.get_bucket_paths_info(bucket_id, [path]):
        if info.xet_hash not in _contents:
            with tempfile.TemporaryDirectory() as directory:
                target = Path(directory) / "value"
                api.download_bucket_files(bucket_id, [(path, str(target))])
                _contents[info.xet_hash] = target.read_bytes()
        return _contents[info.xet_hash]
    return None


def _delete(api: Any, bucket_id: str, path: str) -> None:
    api.batch_bucket_files(bucket_id, delete=[path])


def _info(api: Any, bucket_id: str) -> bool | None:
    found = {info.id: info.private for info in api.list_buckets("local")}
    return found.get(bucket_id)


def _remove(api: Any, bucket_id: str) -> None:
    api.delete_bucket(bucket_id)


_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "create": _create,
    "put": _put,
    "get": _get,
    "delete": _delete,
    "info": _info,
    "remove": _remove,
}


class Buckets:
    """One bucket, and ways to its files that do not go through the backend."""

    def __init__(self, server: hub.LocalHub, client: RawClient, *, is_created: bool = True) -> None:
        self.server = server
        self.id = f"local/kv-{next(_numbers)}"
        self._client = client
        if is_created:
            self.call("create", True)

    def call(self, operation: str, *arguments: Any) -> Any:
        """Let the vendors' client do something with the bucket."""
        return self._client.call(
            operation, self.server.endpoint, self.server.token, self.id, *arguments
        )

    def backend(self, **settings: Any) -> HFBucketBackend:
        """Return a backend over it, not open."""
        usual: dict[str, Any] = {"endpoint": self.server.endpoint, "token": self.server.token}
        handle = settings.pop("handle", f"hf://buckets/{self.id}/prod")
        return HFBucketBackend(handle, **{**usual, **settings})

    @staticmethod
    def path(name: str) -> str:
        """Return where a value is expected."""
        special = {".": "%2E", "..": "%2E%2E"}
        return f"prod/{special.get(name) or quote(name, safe='')}"

    def put(self, name: str, value: bytes) -> None:
        """Store a file."""
        self.call("put", self.path(name), value)

    def get(self, name: str) -> bytes | None:
        """Read a file."""
        found: bytes | None = self.call("get", self.path(name))
        return found

    def delete(self, name: str) -> None:
        """Remove a file."""
        self.call("delete", self.path(name))
