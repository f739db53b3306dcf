"""`tieredkv bench`: L1 and each configured tier beside a bare loop over the same client."""

from __future__ import annotations

import secrets
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, Literal, TypeAlias

import anyio
import attrs
import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tieredkv.backends import Backend, DiskBackend, ReadRequest, ValkeyBackend, WriteRequest
from tieredkv.cli.options import as_json, config_file, print_json, tier_names
from tieredkv.cli.sizes import SIZE, size_text
from tieredkv.cli.tiers import chosen, complain, configuration, open_tier
from tieredkv.clients.glide import ClientError, OwnedClient
from tieredkv.config import MiB
from tieredkv.errors import TieredKVError, TierError
from tieredkv.frames import TRAILER_BYTES, FrameCheck, SizeCheck, seal
from tieredkv.pool.limits import memory_limits
from tieredkv.results import GetStatus, PutStatus
from tieredkv.store import TieredStore

__all__ = ["bench"]

Operation: TypeAlias = Literal["write", "read"]

_MAX_COUNT: Final = 10_000
_COPIES: Final = 4
"""How often the values are in memory at a time, at most."""


@attrs.frozen
class Row:
    """One operation of one tier; medians over the rounds.

    Attributes:
        tier: Its name.
        operation: ``"write"`` or ``"read"``.
        bytes_per_s: Payload a second.
        bare_bytes_per_s: That of the bare loop; None where there is nothing to compare with.
        ratio: How many times as fast as the bare loop of the same round.
    """

    tier: str
    operation: Operation
    bytes_per_s: float
    bare_bytes_per_s: float | None
    ratio: float | None


@click.command(
    epilog="Exit status: 0 all were measured, 1 a tier failed, 2 usage mistake, 130 Ctrl-C."
)
@config_file
@tier_names
@click.option(
    "--value-size", "nbytes", type=SIZE, default=1 * MiB, help="Of a value.  [default: 1MiB]"
)
@click.option(
    "--count",
    type=click.IntRange(1, _MAX_COUNT),
    default=16,
    help="Values in a batch.  [default: 16]",
)
@click.option("--rounds", type=click.IntRange(min=1), default=7, help="[default: 7]")
@as_json
def bench(
    *,
    file: Path | None,
    tiers: tuple[str, ...],
    nbytes: int,
    count: int,
    rounds: int,
    as_json: bool,
) -> int:
    """Measure L1 and each tier beside a bare loop over the same client, in one thread.

    Values have random names and are deleted at the end. A tier that fails is told of, and the
    others are measured nevertheless.
    """
    found = configuration(file)
    backends = chosen(found, tiers)
    if not nbytes:
        raise click.UsageError("--value-size 0: give it at least 1 byte")
    _check_memory(_COPIES * count * nbytes)
    payloads = [secrets.token_bytes(nbytes) for _ in range(count)]

    failed: dict[str, str] = {}

    async def run() -> list[Row]:
        rows = await _l1(payloads, rounds)
        for backend in backends:
            try:
                rows += await _tier(backend, payloads, rounds, is_framed=found.is_framed)
            except TieredKVError as error:
                complain(error)
                failed[backend.name] = str(error)
        return rows

    rows = anyio.run(run)
    if as_json:
        batch = {"value_bytes": nbytes, "count": count, "rounds": rounds}
        print_json({**batch, "rows": [attrs.asdict(row) for row in rows], "failed": failed})
    else:
        Console(highlight=False).print(_table(rows, nbytes, count))
    return int(bool(failed))


def _check_memory(needed_bytes: int) -> None:
    for name, limit_bytes in memory_limits().items():
        if needed_bytes > limit_bytes:
            raise click.UsageError(
                f"the values need {size_text(needed_bytes)} of memory, but {name} is "
                f"{size_text(limit_bytes)}: lower --value-size or --count"
            )


async def _l1(payloads: Sequence[bytes], rounds: int) -> list[Row]:
    """Compare puts, and reads into the caller's memory, with copies to and from memory."""
    items = [(f"bench-{number}", payload) for number, payload in enumerate(payloads)]
    blocks = [memoryview(bytearray(len(payload))) for payload in payloads]
    outs = [(name, block) for (name, _), block in zip(items, blocks, strict=True)]
    capacity = 2 * sum(len(payload) + MiB for payload in payloads)

    def copy() -> None:
        for payload, block in zip(payloads, blocks, strict=True):
            block[:] = payload

    async with TieredStore(capacity) as store:

        async def put() -> None:
            await store.put_many(items)

        async def get() -> None:
            await store.get_into_many(outs)

        await put()
        nbytes = sum(map(len, payloads))
        writes = await _paired("l1", "write", nbytes, rounds=rounds, ours=put, bare=copy)
        reads = await _paired("l1", "read", nbytes, rounds=rounds, ours=get, bare=copy)
    return [writes, reads]


async def _tier(
    backend: Backend, payloads: Sequence[bytes], rounds: int, *, is_framed: bool
) -> list[Row]:
    room = TRAILER_BYTES if is_framed else 0
    names = [f"tieredkv-bench-{secrets.token_hex(8)}" for _ in payloads]
    blocks = [memoryview(bytearray(len(payload) + room)) for payload in payloads]
    for block, payload in zip(blocks, payloads, strict=True):
        block[: len(payload)] = payload

    def sealed(name: str, block: memoryview) -> memoryview:
        if is_framed:
            seal(block, name, generation=time.time_ns() // 1000)
        return block.toreadonly()

    async def write() -> None:
        outcomes = await backend.write_many(
            [
                WriteRequest(name, block.nbytes, partial(sealed, name, block))
                for name, block in zip(names, blocks, strict=True)
            ]
        )
        for outcome in outcomes:
            if outcome.status is not PutStatus.STORED:
                raise outcome.error or TierError(backend.name, "write", str(outcome))

    async def read() -> None:
        scatter = backend.capabilities.scatter
        requests = [
            _request(name, block, scatter=scatter, is_framed=is_framed)
            for name, block in zip(names, blocks, strict=True)
        ]
        for read in await backend.read_many(requests):
            if read.status is not GetStatus.HIT:
                raise read.error or TierError(backend.name, "read", str(read.status))

    nbytes = sum(map(len, payloads))
    async with open_tier(backend, is_framed=is_framed):
        try:
            with _bare(backend, names, payloads) as bare:
                await write()
                put = None if bare is None else bare.write
                get = None if bare is None else bare.read
                return [
                    await _paired(
                        backend.name, "write", nbytes, rounds=rounds, ours=write, bare=put
                    ),
                    await _paired(backend.name, "read", nbytes, rounds=rounds, ours=read, bare=get),
                ]
        finally:
            with anyio.CancelScope(shield=True):
                await backend.delete_many(names)


def _request(name: str, block: memoryview, *, scatter: bool, is_framed: bool) -> ReadRequest:
    if not is_framed:
        return ReadRequest(name, (block,), SizeCheck(name, block))
    payload, trailer = block[:-TRAILER_BYTES], block[-TRAILER_BYTES:]
    buffers = (payload, trailer) if scatter else (block,)
    return ReadRequest(name, buffers, FrameCheck(name, payload, trailer))


async def _paired(
    tier: str,
    operation: Operation,
    nbytes: int,
    *,
    rounds: int,
    ours: Callable[[], Awaitable[None]],
    bare: Callable[[], None] | None,
) -> Row:
    """Let both take turns, after one round that does not count."""
    our_times, bare_times = [], []
    for number in range(rounds + 1):
        began = time.perf_counter()
        await ours()
        between = time.perf_counter()
        if bare is not None:
            bare()
        ended = time.perf_counter()
        if number:
            our_times.append(between - began)
            bare_times.append(ended - between)
    speed = nbytes / median(our_times)
    if bare is None:
        return Row(tier, operation, speed, None, None)
    ratio = median(theirs / own for theirs, own in zip(bare_times, our_times, strict=True))
    return Row(tier, operation, speed, nbytes / median(bare_times), ratio)


class _Bare(ABC):
    """A loop over a client in this thread, into as much memory as the tier reads into."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads
        self._blocks = [memoryview(bytearray(len(payload))) for payload in payloads]

    @abstractmethod
    def write(self) -> None: ...

    @abstractmethod
    def read(self) -> None: ...


class _BareFiles(_Bare):
    def __init__(self, directory: Path, names: Sequence[str], payloads: Sequence[bytes]) -> None:
        super().__init__(payloads)
        self._paths = [directory / name for name in names]

    def write(self) -> None:
        for path, payload in zip(self._paths, self._payloads, strict=True):
            with path.open("wb", buffering=0) as file:
                file.write(payload)

    def read(self) -> None:
        for path, block in zip(self._paths, self._blocks, strict=True):
            with path.open("rb", buffering=0) as file:
                file.readinto(block)


class _BareClient(_Bare):
    def __init__(
        self, client: OwnedClient, keys: Sequence[bytes], payloads: Sequence[bytes]
    ) -> None:
        super().__init__(payloads)
        self._client = client
        self._keys = keys

    def write(self) -> None:
        for key, payload in zip(self._keys, self._payloads, strict=True):
            self._client.set(key, memoryview(payload), None)

    def read(self) -> None:
        for key, block in zip(self._keys, self._blocks, strict=True):
            self._client.get_into(key, block)


def _bare(
    backend: Backend, names: Sequence[str], payloads: Sequence[bytes]
) -> AbstractContextManager[_Bare | None]:
    if isinstance(backend, DiskBackend):
        return _bare_files(backend.path, names, payloads)
    if isinstance(backend, ValkeyBackend):
        return _bare_client(backend, names, payloads)
    return _nothing()


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


@contextmanager
def _bare_files(
    path: Path, names: Sequence[str], payloads: Sequence[bytes]
) -> Iterator[_Bare | None]:
    try:
        directory = tempfile.TemporaryDirectory(dir=path.parent, prefix=".tieredkv-bench-")
    except OSError:  # no right to write beside the tier: it is measured alone
        yield None
        return
    with directory as place:
        try:
            yield _BareFiles(Path(place), names, payloads)
        except OSError as error:
            raise TierError("disk", "bare loop", str(error)) from None


@contextmanager
def _bare_client(
    backend: ValkeyBackend, names: Sequence[str], payloads: Sequence[bytes]
) -> Iterator[_Bare]:
    head = f"{backend.key_prefix}@" if backend.key_prefix else ""
    keys = [f"{head}{name}-bare".encode() for name in names]
    try:
        client = OwnedClient(backend.client_settings)
        try:
            yield _BareClient(client, keys, payloads)
            client.delete(keys)
        finally:
            client.close()
    except ClientError as error:
        raise TierError(backend.name, "bare loop", str(error)) from None


def _table(rows: Sequence[Row], nbytes: int, count: int) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.caption = f"{count} values of {size_text(nbytes)}, medians"
    table.caption_justify = "left"
    for title in ("tier", "operation"):
        table.add_column(title, min_width=9)
    for title in ("MB/s", "bare MB/s", "ratio"):
        table.add_column(title, min_width=9, justify="right")
    for row in rows:
        bare = "" if row.bare_bytes_per_s is None else f"{row.bare_bytes_per_s / 1e6:,.0f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.tier, row.operation, f"{row.bytes_per_s / 1e6:,.0f}", bare, ratio)
    return table
