"""`tieredkv demo`: real requests through L1 and disk and back, every byte verified."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import click
from rich.console import Console

from tieredkv.backends import Backend, DiskBackend
from tieredkv.cli.contents import MIN_VALUE_BYTES, Contents
from tieredkv.cli.replay import Replay
from tieredkv.cli.report import Holding, Report
from tieredkv.cli.screen import Screen
from tieredkv.cli.sizes import SIZE, size_text
from tieredkv.cli.trace import TraceError, read_trace
from tieredkv.cli.workload import Request, chat, distinct_chunks
from tieredkv.config import KiB, MiB
from tieredkv.errors import TierError
from tieredkv.store import TieredStore

__all__ = ["demo"]

_CHAT_REQUESTS: Final = 2400
_MIN_L1_BYTES: Final = 1 * MiB
_VALUES_IN_L1: Final = 8
_DISK_TO_L1: Final = 16


@click.command(
    epilog="Exit status: 0 every byte was right, 1 one was not or the run failed, 2 usage mistake, "
    "130 Ctrl-C (the table so far is printed)."
)
@click.option(
    "--trace",
    "trace_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Requests to replay instead of the built-in chat: JSON lines "
    "[time_s, [[first_id, run_length], ...]], may be gzipped.",
)
@click.option(
    "--value-size",
    "value_bytes",
    type=SIZE,
    default=64 * KiB,
    help="Size of a chunk.  [default: 64KiB]",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"Number of requests.  [default: all of FILE; {_CHAT_REQUESTS} of the chat]",
)
@click.option(
    "--l1", "l1_bytes", type=SIZE, default=64 * MiB, help="Capacity of L1.  [default: 64MiB]"
)
@click.option("--seed", type=int, default=0, help="Of the chat and the contents.  [default: 0]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def demo(
    trace_path: Path | None,
    value_bytes: int,
    limit: int | None,
    l1_bytes: int,
    seed: int,
    *,
    as_json: bool,
) -> int:
    """Replay requests against L1 over disk and verify every byte.

    The disk tier, 16 times as large as L1, lies in a temporary directory, which is removed at the
    end. No server, no network.
    """
    _check_sizes(value_bytes, l1_bytes)
    requests = _requests(trace_path, limit, seed)
    try:
        directory = tempfile.TemporaryDirectory(prefix="tieredkv-demo-")
    except OSError as error:
        raise click.ClickException(f"no temporary directory: {error.strerror}") from None
    with directory as path:
        disk_bytes = _DISK_TO_L1 * l1_bytes
        _check_room(path, min(disk_bytes, distinct_chunks(requests) * value_bytes))
        disk = DiskBackend(path, capacity=disk_bytes)
        show = Demonstration([disk], Contents(seed, value_bytes), requests, l1_bytes=l1_bytes)
        report = anyio.run(show.run)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        console = Console(highlight=False)
        console.print(report.table())
        console.print(report.verdict(), soft_wrap=True)
    if not report.is_right:
        return 1
    return 0 if show.signal is None else 128 + show.signal


class Demonstration:
    """One replay with its store and its picture on the screen.

    Attributes:
        signal: The signal that ended it early, or None.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        contents: Contents,
        requests: Sequence[Request],
        *,
        l1_bytes: int,
    ) -> None:
        self.signal: signal.Signals | None = None
        self._backends = backends
        self._contents = contents
        self._requests = requests
        self._l1_bytes = l1_bytes

    async def run(self) -> Report:
        """Replay the requests, or as many as are served when SIGINT or SIGTERM comes.

        Raises:
            TierError: A backend cannot be opened.
        """
        console = Console(stderr=True, highlight=False)
        screen = Screen(console)
        tiers = ["l1", *(backend.name for backend in self._backends)]
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with TieredStore(self._l1_bytes, self._backends) as store:
                replay = Replay(store, self._contents, tiers=tiers, l1_bytes=self._l1_bytes)
                console.print(
                    f"{len(self._requests):,} requests, {size_text(self._l1_bytes)} of L1 over "
                    f"{', '.join(tiers[1:])}; Ctrl-C ends with the table so far",
                    soft_wrap=True,
                )
                with screen.open():
                    await self._replay(replay, signals, screen, lambda: self._report(store, replay))
                return self._report(store, replay, await self._holdings())

    async def _replay(
        self,
        replay: Replay,
        signals: AsyncIterator[signal.Signals],
        screen: Screen,
        report: Callable[[], Report],
    ) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._interrupt, signals, tasks.cancel_scope)
                tasks.start_soon(screen.keep_current, report)
                await replay.run(self._requests)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _interrupt(
        self, signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope
    ) -> None:
        self.signal = await anext(signals)
        scope.cancel()

    def _report(
        self, store: TieredStore, replay: Replay, holdings: Mapping[str, Holding] | None = None
    ) -> Report:
        return Report.of(
            replay.tally,
            store.stats(),
            holdings or {},
            planned_requests=len(self._requests),
            value_bytes=self._contents.value_bytes,
        )

    async def _holdings(self) -> dict[str, Holding]:
        """Ask the backends what they hold; one that does not say is left out."""
        holdings: dict[str, Holding] = {}
        for backend in self._backends:
            if not backend.capabilities.listable:
                continue
            try:
                sizes = [stored.stored_bytes async for stored in backend.list_names()]
            except TierError:
                continue
            holdings[backend.name] = Holding(len(sizes), sum(sizes))
        return holdings


def _requests(trace_path: Path | None, limit: int | None, seed: int) -> list[Request]:
    if trace_path is None:
        return list(islice(chat(seed), limit or _CHAT_REQUESTS))
    try:
        return read_trace(trace_path, limit)
    except TraceError as error:
        raise click.UsageError(str(error)) from None


def _check_sizes(value_bytes: int, l1_bytes: int) -> None:
    if value_bytes < MIN_VALUE_BYTES:
        raise click.UsageError(
            f"--value-size {value_bytes}: a value that can be told from others has at least "
            f"{MIN_VALUE_BYTES} bytes"
        )
    if l1_bytes < (least := max(_VALUES_IN_L1 * value_bytes, _MIN_L1_BYTES)):
        raise click.UsageError(
            f"--l1 {size_text(l1_bytes)} is too small for values of {size_text(value_bytes)}: "
            f"give it at least {size_text(least)}"
        )


def _check_room(path: str, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(path).free
    if needed_bytes > free_bytes:
        raise click.UsageError(
            f"the disk tier needs {size_text(needed_bytes)}, {size_text(free_bytes)} are free in "
            f"{Path(path).parent}: lower --l1 (the disk tier is {_DISK_TO_L1} times as large) or "
            "--limit, or set TMPDIR"
        )
