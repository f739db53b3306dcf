"""`tieredkv demo`: real requests through L1 and tiers and back, every byte verified."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import click
from rich.console import Console

from tieredkv.backends import Backend
from tieredkv.cli.contents import MAX_VALUE_BYTES, MIN_VALUE_BYTES, Contents
from tieredkv.cli.faults import MOMENT, Fault, Moment, Phases, checked
from tieredkv.cli.media import MEDIA, Directory, Medium
from tieredkv.cli.replay import WINDOW_SHARE_OF_L1, Replay
from tieredkv.cli.report import Holding, Report
from tieredkv.cli.screen import Screen
from tieredkv.cli.sizes import SIZE, size_text
from tieredkv.cli.trace import TraceError, read_trace
from tieredkv.cli.workload import Request, chat, distinct_chunks
from tieredkv.config import KiB, MiB, WriteThrough
from tieredkv.errors import TierError
from tieredkv.store import TieredStore

__all__ = ["demo"]

_CHAT_REQUESTS: Final = 2400
_MIN_L1_BYTES: Final = 1 * MiB
_VALUES_IN_L1: Final = 8
_LAST_TO_L1: Final = 16
_NEXT_TO_L1: Final = 4


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
@click.option(
    "--tiers",
    "tier_names",
    metavar="TIER,…",
    default=Directory.name,
    help=f"Tiers below L1, in order, of {', '.join(MEDIA)}; each is started for the demo: a "
    "directory, a Valkey server, a local Hugging Face Hub.  [default: disk]",
)
@click.option(
    "--kill",
    "kills",
    type=MOMENT,
    multiple=True,
    help="Take a tier away after this share of the requests: kill its server, put a file where "
    "its directory is. May be given several times.",
)
@click.option(
    "--restart",
    "restarts",
    type=MOMENT,
    multiple=True,
    help="Bring a tier back that was killed; Valkey comes back empty.",
)
@click.option("--seed", type=int, default=0, help="Of the chat and the contents.  [default: 0]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def demo(
    *,
    trace_path: Path | None,
    value_bytes: int,
    limit: int | None,
    l1_bytes: int,
    tier_names: str,
    kills: tuple[Moment, ...],
    restarts: tuple[Moment, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Replay requests against L1 over disk and verify every byte.

    With --tiers also over Valkey and a Hugging Face Bucket. The last tier is 16 times as large as
    L1, those above it 4 times as large as what is above them. All of it lies in temporary
    directories, which are removed at the end; no network.
    """
    _check_sizes(value_bytes, l1_bytes)
    tiers = _tiers(tier_names)
    faults = checked(kills, restarts, tiers)
    requests = _requests(trace_path, limit, seed)
    capacities = [_NEXT_TO_L1**place * l1_bytes for place in range(1, len(tiers))]
    capacities.append(max(_LAST_TO_L1 * l1_bytes, *capacities, 0))

    async def run() -> tuple[Report, signal.Signals | None]:
        # From here on a signal raises nothing, so that all is removed however many there are.
        with anyio.open_signal_receiver(*_ends()) as signals, _temporary_directory() as path:
            media = [
                MEDIA[tier](path, capacity_bytes)
                for tier, capacity_bytes in zip(tiers, capacities, strict=True)
            ]
            _check_room(path, media, distinct_chunks(requests) * value_bytes)
            show = Demonstration(
                media, faults, Contents(seed, value_bytes), requests, l1_bytes=l1_bytes
            )
            return await show.run(signals), show.signal

    report, ended_by = anyio.run(run)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        console = Console(highlight=False)
        console.print(report.table())
        console.print(report.details())
        console.print(report.verdict(), soft_wrap=True)
    if not report.is_right:
        return 1
    return 0 if ended_by is None else 128 + ended_by


class Demonstration:
    """One replay with its store and its picture on the screen.

    Attributes:
        signal: The signal that ended it early, or None.
    """

    def __init__(
        self,
        media: Sequence[Medium],
        faults: Sequence[Fault],
        contents: Contents,
        requests: Sequence[Request],
        *,
        l1_bytes: int,
    ) -> None:
        self.signal: signal.Signals | None = None
        self._media = {medium.name: medium for medium in media}
        self._faults = faults
        self._contents = contents
        self._requests = requests
        self._l1_bytes = l1_bytes
        self._phases = Phases()

    async def run(self, signals: AsyncIterator[signal.Signals]) -> Report:
        """Replay the requests, or as many as are served when a signal comes.

        Raises:
            click.ClickException: A medium cannot be started.
            TierError: A backend cannot be opened.
        """
        console = Console(stderr=True, highlight=False)
        screen = Screen(console)
        tiers = ["l1", *self._media]
        with ExitStack() as running:
            backends = [running.enter_context(medium.running()) for medium in self._media.values()]
            async with TieredStore(
                self._l1_bytes,
                backends,
                write_policy=WriteThrough(require="all"),  # none is left out because it is slow
                max_pending=len(backends) * self._l1_bytes // WINDOW_SHARE_OF_L1,
            ) as store:
                replay = Replay(store, self._contents, tiers=tiers, l1_bytes=self._l1_bytes)
                console.print(
                    f"{len(self._requests):,} requests, {size_text(self._l1_bytes)} of L1 over "
                    f"{', '.join(tiers[1:])}; Ctrl-C ends with the table so far",
                    soft_wrap=True,
                )
                self._phases.begin("the start", replay.tally, store.stats())
                with screen.open():
                    await self._replay(replay, store, signals, screen)
                return self._report(store, replay, await self._holdings(backends))

    async def _replay(
        self,
        replay: Replay,
        store: TieredStore,
        signals: AsyncIterator[signal.Signals],
        screen: Screen,
    ) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._interrupt, signals, tasks.cancel_scope)
                tasks.start_soon(screen.keep_current, lambda: self._report(store, replay))
                await replay.run(self._with_faults(replay, store))
                tasks.cancel_scope.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def _with_faults(self, replay: Replay, store: TieredStore) -> Iterator[Request]:
        """Yield the requests, and let the faults happen between them."""
        due = list(self._faults)
        for number, request in enumerate(self._requests):
            while due and number >= due[0].share * len(self._requests):
                fault = due.pop(0)
                medium = self._media[fault.tier]
                medium.kill() if fault.kind == "killed" else medium.restart()
                self._phases.begin(f"{fault.tier} {fault.kind}", replay.tally, store.stats())
            yield request

    async def _interrupt(
        self, signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope
    ) -> None:
        self.signal = await anext(signals)
        scope.cancel()

    def _report(
        self, store: TieredStore, replay: Replay, holdings: Mapping[str, Holding] | None = None
    ) -> Report:
        stats = store.stats()
        return Report.of(
            replay.tally,
            stats,
            holdings or {},
            self._phases.until(replay.tally, stats),
            planned_requests=len(self._requests),
            value_bytes=self._contents.value_bytes,
        )

    @staticmethod
    async def _holdings(backends: Sequence[Backend]) -> dict[str, Holding]:
        """Ask the backends what they hold; one that does not say is left out."""
        holdings: dict[str, Holding] = {}
        for backend in backends:
            if not backend.capabilities.listable:
                continue
            try:
                sizes = [stored.stored_bytes async for stored in backend.list_names()]
            except TierError:
                continue
            holdings[backend.name] = Holding(len(sizes), sum(sizes))
        return holdings


def _ends() -> Iterator[signal.Signals]:
    """Yield the signals that end the demo: none that is ignored, as by `nohup`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            yield number


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    try:
        directory = tempfile.TemporaryDirectory(prefix="tieredkv-demo-")
    except OSError as error:
        raise click.ClickException(f"no temporary directory: {error.strerror}") from None
    with directory as path:
        yield Path(path)


def _requests(trace_path: Path | None, limit: int | None, seed: int) -> list[Request]:
    if trace_path is None:
        return list(islice(chat(seed), limit or _CHAT_REQUESTS))
    try:
        return read_trace(trace_path, limit)
    except TraceError as error:
        raise click.UsageError(str(error)) from None


def _tiers(names: str) -> list[str]:
    tiers = [name.strip() for name in names.split(",")]
    for tier in tiers:
        if tier not in MEDIA:
            raise click.UsageError(f"--tiers {names}: {tier!r} is none of {', '.join(MEDIA)}")
        if tiers.count(tier) > 1:
            raise click.UsageError(f"--tiers {names}: {tier!r} is there twice")
    return tiers


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
    if value_bytes > MAX_VALUE_BYTES:
        raise click.UsageError(
            f"--value-size {size_text(value_bytes)} is too large: give it at most "
            f"{size_text(MAX_VALUE_BYTES)}"
        )


def _check_room(path: Path, media: Sequence[Medium], contents_bytes: int) -> None:
    needed_bytes = sum(medium.required_bytes(contents_bytes) for medium in media)
    free_bytes = shutil.disk_usage(path).free
    if needed_bytes > free_bytes:
        raise click.UsageError(
            f"the tiers need {size_text(needed_bytes)}, {size_text(free_bytes)} are free in "
            f"{path.parent}: lower --l1 (the tiers are many times as large) or --limit, or "
            "set TMPDIR"
        )
