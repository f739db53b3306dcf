"""`TieredStore` over a directory beside diskcache, py-key-value and bare system calls.

diskcache keeps large values as files, too, and an index in SQLite. The bare loop opens a file,
reads it into place with one ``preadv``, or writes and renames it. All have as many threads, but
py-key-value, which calls diskcache on the event loop, and for which bytes go through base64 into
JSON. ``python -m benchmarks.peers_disk [DIRECTORY]`` measures in that directory; without one in
memory, as `benchmarks.disk` does.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from benchmarks.contenders import Operation, Store, compare
from benchmarks.peer import AsyncClient, BlockingClient, Load, Plan
from benchmarks.runner import Options, Report
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB

_BATCHES: Final = {1 * KiB: 256, 64 * KiB: 256, 1 * MiB: 32, 4 * MiB: 16, 10 * MiB: 8}
_WORKERS: Final = 4
_MOST_JSON_BYTES: Final = 32 * MiB
_IN_MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None


class BareFiles(BlockingClient):
    name = "open, preadv, close"

    def open(self) -> None:
        self._paths = [f"{self.place}/{at}" for at in range(len(self.load.keys))]

    def get(self, group: slice) -> Sequence[memoryview]:
        buffers = self.load.buffers[group]
        for path, buffer in zip(self._paths[group], buffers, strict=True):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            assert os.preadv(descriptor, [buffer], 0) == buffer.nbytes
            os.close(descriptor)
        return buffers

    def set(self, group: slice) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for path, value in zip(self._paths[group], self.load.values[group], strict=True):
            descriptor = os.open(f"{path}.new", flags, 0o600)
            assert os.write(descriptor, value) == len(value)
            os.close(descriptor)
            os.rename(f"{path}.new", path)  # noqa: PTH104 - the bare call

    def close(self) -> None:
        pass


class DiskCache(BlockingClient):
    """With a connection to its index for each thread, as it does itself."""

    name = "diskcache"
    packages = ("diskcache",)

    def open(self) -> None:
        self._cache = import_module("diskcache").Cache(str(self.place), eviction_policy="none")

    def get(self, group: slice) -> Sequence[bytes]:
        return [self._cache.get(key) for key in self.load.keys[group]]

    def set(self, group: slice) -> None:
        for key, value in zip(self.load.keys[group], self.load.values[group], strict=True):
            self._cache.set(key, value, retry=True)

    def close(self) -> None:
        self._cache.close()


class KeyValueDisk(AsyncClient):
    name = "py-key-value, disk"
    packages = ("py-key-value-aio", "diskcache")

    async def open(self) -> None:
        stores: Any = import_module("key_value.aio.stores.disk")
        self._store = stores.DiskStore(directory=self.place, default_collection="peers")

    async def get(self, group: slice) -> Sequence[bytes]:
        entries = await self._store.get_many(self.load.keys[group])
        return [base64.b64decode(entry["value"]) for entry in entries]

    async def set(self, group: slice) -> None:
        entries = [{"value": base64.b64encode(value).decode()} for value in self.load.values[group]]
        await self._store.put_many(self.load.keys[group], entries)

    async def aclose(self) -> None:
        await self._store.close()


KINDS: Final[Sequence[type[BlockingClient | AsyncClient]]] = (BareFiles, DiskCache, KeyValueDisk)
_OPERATIONS: Final[Sequence[Operation]] = ("load", "store")


def run(options: Options, directory: str | None = _IN_MEMORY) -> Iterator[Report]:
    """Measure loads and stores of batches."""
    for kind in KINDS:
        if reason := kind.missing():
            print(f"without {kind.name}: {reason}", file=sys.stderr)
    for nbytes in (64 * KiB,) if options.quick else _BATCHES:
        load = Load(nbytes, 8 if options.quick else _BATCHES[nbytes])
        for operation in _OPERATIONS:
            with tempfile.TemporaryDirectory(dir=directory) as root:
                yield anyio.run(_compare, options, load, operation, Path(root))


async def _compare(options: Options, load: Load, operation: Operation, root: Path) -> Report:
    clients = []
    for kind in KINDS:
        if kind is KeyValueDisk and load.nbytes * len(load.keys) > _MOST_JSON_BYTES:
            continue
        if not kind.missing():
            place = root / kind.__name__
            place.mkdir()
            clients.append(kind(load, place))
    return await compare(
        options,
        load,
        Plan.batch(load, _WORKERS),
        operation,
        title=f"Disk peers: {operation} of {load}, {_WORKERS} threads",
        clients=clients,
        stores=[
            Store("TieredStore, size", _store(root, load, "size")),
            Store("TieredStore", _store(root, load, "checksum")),
        ],
    )


def _store(root: Path, load: Load, mode: Literal["size", "checksum"]) -> TieredStore:
    backend = DiskBackend(root / mode, capacity="1TiB", num_workers=_WORKERS)
    return TieredStore(load.l1(), [backend], integrity=mode)


if __name__ == "__main__":
    for report in run(Options(), *sys.argv[1:]):
        print(report.table(), flush=True)
