"""What the Valkey backend costs beside a bare loop over the same client in one thread.

The server is a real one on the loopback interface. A bare loop reads with the better of GET and
MGET, straight into the memory, and writes with the better of SET and a pipeline of SETs, with the
same expiry. Values are as `TieredStore` sends them: bare in "size", framed in "checksum", where the
bare loop moves the payload only. The same in threads says
what a worker costs, or saves. What is alone moves nothing: it makes the requests of a batch and
checks what has landed, or seals what is to be written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import anyio
import attrs

from benchmarks.runner import Options, Pass, Report, Subject, paired
from benchmarks.values import Values
from tieredkv.backends import ValkeyBackend
from tieredkv.config import KiB, MiB
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.valkey import ValkeyServer

WORKERS: Final = 2
TTL_S: Final = 3600
_GROUP_BYTES: Final = 1 * MiB

# payload bytes → values a batch; targets in "size" and "checksum" (None: none), reads and writes
_BATCHES: Final = {1 * KiB: 256, 64 * KiB: 64, 1 * MiB: 32, 4 * MiB: 16, 10 * MiB: 8}
_READ_TARGETS: Final[dict[int, tuple[float | None, float | None]]] = {
    1 * KiB: (0.60, None),
    64 * KiB: (0.85, 0.70),
    1 * MiB: (1.0, 1.0),
    4 * MiB: (1.0, 1.0),
    10 * MiB: (1.0, 1.0),
}
_WRITE_TARGETS: Final[dict[int, tuple[float | None, float | None]]] = {
    1 * KiB: (None, None),
    64 * KiB: (0.92, 0.85),
    1 * MiB: (0.92, 0.85),
    4 * MiB: (0.92, 0.85),
    10 * MiB: (0.92, 0.85),
}
MODES: Final = ("size", "checksum")


def run(options: Options) -> Iterator[Report]:
    """Measure all of it, on asyncio."""
    for nbytes, count in _BATCHES.items():
        with ValkeyServer() as server:
            batch = Batch(server, nbytes, 8 if options.quick else count)
            try:
                yield anyio.run(compare, options, batch, "read", _READ_TARGETS[nbytes])
                yield anyio.run(compare, options, batch, "write", _WRITE_TARGETS[nbytes])
            finally:
                batch.close()


class Batch(Values):
    """How the backend and a bare loop move values."""

    def __init__(self, server: ValkeyServer, nbytes: int, count: int) -> None:
        import glide_sync

        super().__init__(nbytes, count, scatter=False)
        self.glide: Any = glide_sync
        self.server = server
        self.threads = ThreadPoolExecutor(WORKERS)
        address = glide_sync.NodeAddress("127.0.0.1", server.port)
        settings = glide_sync.GlideClientConfiguration([address], request_timeout=10_000)
        self.clients: list[Any] = [glide_sync.GlideClient.create(settings) for _ in range(WORKERS)]
        self.client = self.clients[0]
        self.expiry = glide_sync.ExpirySet(glide_sync.ExpiryType.SEC, TTL_S)
        group = max(1, _GROUP_BYTES // nbytes)
        self.groups = [slice(at, at + group) for at in range(0, count, group)]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.threads.shutdown()

    def __str__(self) -> str:
        mib, kib = self.nbytes // MiB, self.nbytes // KiB
        return f"{len(self.names)} x {mib} MiB" if mib else f"{len(self.names)} x {kib} KiB"

    def backend(self, mode: str, num_workers: int = WORKERS) -> ValkeyBackend:
        return ValkeyBackend(self.server.url, key_prefix=mode, num_workers=num_workers, ttl_s=TTL_S)

    def bare(self, operation: str) -> list[Subject]:
        if operation == "read":
            return [Subject("bare get", self.get), Subject("bare mget", self.mget)]
        return [Subject("bare set", self.set), Subject("bare pipeline", self.pipeline)]

    @property
    def bare_names(self) -> list[str]:
        return [f"size@{name}" for name in self.names]

    def get(self) -> Pass:
        began = time.perf_counter()
        for key, payload in zip(self.bare_names, self.payloads, strict=True):
            assert int(self.client.get(key, buffer=payload)) == self.nbytes
        return Pass(len(self.names), time.perf_counter() - began)

    def mget(self) -> Pass:
        began = time.perf_counter()
        self._mget(self.client, self.groups)
        return Pass(len(self.names), time.perf_counter() - began)

    def _mget(self, client: Any, groups: Sequence[slice]) -> None:
        keys = self.bare_names
        for group in groups:
            for size in client.mget(keys[group], buffers=self.payloads[group]):
                assert int(size) == self.nbytes

    def set(self) -> Pass:
        began = time.perf_counter()
        for name, payload in zip(self.names, self.payloads, strict=True):
            self.client.set(f"bare@{name}", payload, expiry=self.expiry)
        return Pass(len(self.names), time.perf_counter() - began)

    def pipeline(self) -> Pass:
        began = time.perf_counter()
        self._pipeline(self.client, self.groups)
        return Pass(len(self.names), time.perf_counter() - began)

    def _pipeline(self, client: Any, groups: Sequence[slice]) -> None:
        for group in groups:
            batch = self.glide.Batch(is_atomic=False)
            for name, payload in zip(self.names[group], self.payloads[group], strict=True):
                batch.set(f"bare@{name}", payload, expiry=self.expiry)
            assert set(client.exec(batch, raise_on_error=True)) == {"OK"}

    def threaded(self, operation: str) -> list[Subject]:
        """Return the bare loop over groups in threads with a client each, as workers have."""
        move, name = (self._mget, "mget") if operation == "read" else (self._pipeline, "pipeline")

        async def run(count: int) -> Pass:
            loop = asyncio.get_running_loop()
            began = time.perf_counter()
            await asyncio.gather(
                *(
                    loop.run_in_executor(
                        self.threads, move, self.clients[at], self.groups[at::count]
                    )
                    for at in range(count)
                )
            )
            return Pass(len(self.names), time.perf_counter() - began)

        return [
            Subject(f"bare {name} in a thread", partial(run, 1)),
            Subject(f"bare {name} in {WORKERS} threads", partial(run, WORKERS)),
        ]

    async def read(self, backend: ValkeyBackend, mode: str) -> Pass:
        began = time.perf_counter()
        outcomes = await backend.read_many(self.reads(mode))
        seconds = time.perf_counter() - began
        assert all(outcome.status is GetStatus.HIT for outcome in outcomes)
        return Pass(len(outcomes), seconds)

    async def write(self, backend: ValkeyBackend, mode: str) -> Pass:
        began = time.perf_counter()
        outcomes = await backend.write_many(self.writes(mode))
        seconds = time.perf_counter() - began
        assert all(outcome.status is PutStatus.STORED for outcome in outcomes)
        return Pass(len(outcomes), seconds)

    async def look_up(self, backend: ValkeyBackend, _: str) -> Pass:
        began = time.perf_counter()
        outcomes = await backend.stat_many(self.names)
        seconds = time.perf_counter() - began
        assert all(outcome.status is GetStatus.HIT for outcome in outcomes)
        return Pass(len(outcomes), seconds)

    def alone(self, operation: str) -> list[Subject]:
        """Return what moves nothing: what the contract has for each value, and sealing it."""

        def reads(mode: str) -> int:
            requests = self.reads(mode)
            assert all(request.check.result() is GetStatus.HIT for request in requests)
            return len(requests)

        def writes(mode: str) -> int:
            requests = self.writes(mode)
            assert all(request.seal() for request in requests)
            return len(requests)

        if operation == "read":
            return [
                Subject("requests alone", partial(reads, "size")),
                Subject("checked requests alone", partial(reads, "checksum")),
            ]
        return [
            Subject("requests alone", partial(writes, "size")),
            Subject("sealed requests alone", partial(writes, "checksum")),
        ]


async def compare(
    options: Options,
    batch: Batch,
    operation: str,
    targets: Sequence[float | None],
) -> Report:
    """Measure batches in both modes; the better of two bare loops, by its median, is the base."""
    backends = [batch.backend(mode) for mode in MODES]
    move = batch.read if operation == "read" else batch.write
    try:
        for backend, mode in zip(backends, MODES, strict=True):
            await backend.open()
            await batch.write(backend, mode)
        moves = [partial(move, *of) for of in zip(backends, MODES, strict=True)]
        bare = batch.bare(operation)
        threaded = batch.threaded(operation)
        subjects = [*bare, *threaded, *(Subject(*of) for of in zip(MODES, moves, strict=True))]
        subjects = [attrs.evolve(subject, nbytes=batch.nbytes) for subject in subjects]
        alone = batch.alone(operation)
        result = await paired([*subjects, *alone], rounds=options.rounds_or(41), warmup=2)
    finally:
        for backend in backends:
            await backend.aclose()
    rows = result.rows()
    base = min(rows[: len(bare)], key=lambda row: row.median_s).name
    return Report(
        f"Valkey: {operation} of {batch}, {WORKERS} workers",
        rows,
        [
            result.ratio(mode, base, at_least=target, speed=True)
            for mode, target in zip(MODES, targets, strict=True)
        ]
        + [result.ratio(subject.name, base, speed=True) for subject in threaded]
        + [result.share(subject.name, base) for subject in alone],
        panel=f"{operation}s, beside the better of two bare loops",
        label=str(batch),
    )


if __name__ == "__main__":
    for report in run(Options()):
        print(report.table(), flush=True)
