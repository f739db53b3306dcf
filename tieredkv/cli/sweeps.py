"""`tieredkv copy` and `verify`: all values of a tier, a batch at a time, with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tieredkv.backends import Backend, StoredName
from tieredkv.cli.options import as_json, config_file, print_json, tier_names
from tieredkv.cli.repeats import Repeats
from tieredkv.cli.sizes import size_text
from tieredkv.cli.tiers import (
    Found,
    OpenTier,
    chosen,
    configuration,
    open_tier,
    payload_of,
    sealed,
)
from tieredkv.errors import TieredKVError
from tieredkv.results import GetStatus, PutStatus

__all__ = ["copy", "verify"]

_INTERRUPTED: Final = 130
_MAX_PROBLEMS: Final = 20
_MAX_SILENT: Final = 3
"""Batches in a row of which nothing was answered, after which the rest is not tried."""


class _Progress:
    """Bytes done of all there are, with the time that is left; drawn on a terminal only."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True, highlight=False)
        self.is_drawn: bool = console.is_interactive
        self._bar = Progress(
            TextColumn(title),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self.is_drawn,
        )
        self._task: TaskID = self._bar.add_task("", total=None)

    @contextmanager
    def open(self) -> Iterator[None]:
        with self._bar:
            yield

    async def expect(self, tier: OpenTier, prefix: str) -> None:
        """Learn how much there is: a listing of its own, so only for those who see it."""
        if self.is_drawn:
            sizes = [stored.stored_bytes async for stored in tier.names(prefix)]
            self._bar.update(self._task, total=sum(sizes))

    def advance(self, nbytes: int) -> None:
        self._bar.advance(self._task, nbytes)


@attrs.define
class Sweep:
    """What came of the values of a tier.

    Attributes:
        counts: Outcome → values.
        nbytes: Bytes of those that were read or written, as stored.
        problems: The first of those that are not as they should be, in words.
        broken: Why it ended before the last value; else empty.
    """

    counts: dict[str, int]
    nbytes: int = 0
    problems: list[str] = attrs.field(factory=list)
    broken: str = ""

    def count(self, outcome: str, nbytes: int = 0) -> None:
        """Count a value."""
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.nbytes += nbytes

    def note(self, outcome: str, name: str, why: str = "") -> None:
        """Count a value that is not as it should be, and name it if it is one of the first."""
        self.count(outcome)
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{name}: {why or outcome}")

    def has_failed(self, *outcomes: str) -> bool:
        """Say whether it ended early, or a value ended so."""
        return bool(self.broken) or any(self.counts[outcome] for outcome in outcomes)

    def print(self, title: str) -> None:
        """Print it for people."""
        counted = ", ".join(
            f"{times:,} {name.replace('_', ' ')}" for name, times in self.counts.items()
        )
        click.echo(f"{title}: {counted}; {size_text(self.nbytes)}")
        for problem in self.problems:
            click.echo(f"  {problem}")
        if self.broken:
            click.echo(f"  ended early: {' '.join(self.broken.split())}")


# -- verify ---------------------------------------------------------------------------------------


@click.command(
    epilog="Exit status: 0 every value is whole, 1 one is corrupt or could not be read, 2 usage "
    "mistake, 130 Ctrl-C (the counts so far are printed)."
)
@config_file
@tier_names
@click.option("--prefix", default="", help="Only names that begin so.")
@as_json
def verify(file: Path | None, tiers: tuple[str, ...], prefix: str, *, as_json: bool) -> int:
    """Read every value of the tiers and check its frame; nothing is changed.

    Foreign: not written by a store with checksums. Expired: its time is over. Gone: deleted or
    evicted meanwhile. With integrity = "size" only sizes can be checked. Content that several names
    have is told, too.
    """
    found = configuration(file)
    backends = chosen(found, tiers)
    sweeps = {backend.name: _verified() for backend in backends}
    repeats = {backend.name: Repeats() for backend in backends}

    async def run() -> None:
        for backend in backends:
            sweep = sweeps[backend.name]
            try:
                async with open_tier(backend, is_framed=found.is_framed) as tier:
                    await _verify(tier, prefix, sweep, repeats[tier.name])
            except TieredKVError as error:
                sweep.broken = str(error)

    interrupted = _run(run)
    if as_json:
        document = {
            name: {**attrs.asdict(sweep), "repeated": repeats[name].repeated}
            for name, sweep in sweeps.items()
        }
        print_json({"tiers": document, "interrupted": interrupted})
    else:
        for name, sweep in sweeps.items():
            sweep.print(name)
            if repeats[name].repeated:
                click.echo(f"  {repeats[name]}")
    if interrupted:
        return _INTERRUPTED
    return int(any(sweep.has_failed("corrupt", "unknown") for sweep in sweeps.values()))


def _verified() -> Sweep:
    return Sweep(dict.fromkeys(("whole", "corrupt", "unknown", "foreign", "expired", "gone"), 0))


async def _verify(tier: OpenTier, prefix: str, sweep: Sweep, repeats: Repeats) -> None:
    progress = _Progress(f"verify {tier.name}")
    silent = 0
    with progress.open():
        await progress.expect(tier, prefix)
        async for batch in tier.batches(prefix):
            read = await tier.read(batch)
            for item in read:
                if item.status is GetStatus.HIT:
                    sweep.count("whole", item.stored.nbytes)
                    repeats.add(item.name, payload_of(item.name, item.stored))
                elif item.status is GetStatus.MISS:
                    sweep.count(item.reason or "gone")
                elif item.status is GetStatus.CORRUPT:
                    sweep.note("corrupt", item.name)
                else:
                    sweep.note("unknown", item.name, item.reason)
            progress.advance(sum(stored.stored_bytes for stored in batch))
            silent = silent + 1 if _is_silent(read) else 0
            if silent == _MAX_SILENT:
                sweep.broken = f"{tier.name} does not answer"
                return


def _is_silent(read: Sequence[Found]) -> bool:
    return all(item.status is GetStatus.UNKNOWN for item in read)


# -- copy -----------------------------------------------------------------------------------------


@click.command(
    epilog="Exit status: 0 DST holds every whole value of SRC, 1 one could not be read, written or "
    "verified, 2 usage mistake, 130 Ctrl-C (run it again to go on)."
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@config_file
@click.option("--prefix", default="", help="Only names that begin so.")
@as_json
def copy(source: str, target: str, file: Path | None, prefix: str, *, as_json: bool) -> int:
    """Copy the values of tier SRC to tier DST and verify each by reading it back.

    SRC and DST are names of tiers in the configuration, or FILE:NAME for those of another one.
    Values keep their age and expiry. What DST holds already, whole and with the same content, is
    passed over, so a copy that was interrupted goes on where it ended. Values go in batches of
    32 MiB, or one that is larger, which are in memory a few times over. A tier that answers for
    nothing of three batches in a row ends it.
    """
    ends = [_end(text, file) for text in (source, target)]
    if source == target:
        raise click.UsageError(f"SRC and DST are both {source}")
    names = ("copied", "passed_over", "corrupt", "unknown", "foreign", "expired", "gone", "failed")
    sweep = Sweep(dict.fromkeys(names, 0))

    async def run() -> None:
        (src, src_framed), (dst, dst_framed) = ends
        async with (
            open_tier(src, is_framed=src_framed) as read_from,
            open_tier(dst, is_framed=dst_framed) as write_to,
        ):
            try:
                await _copy(read_from, write_to, prefix, sweep)
            except TieredKVError as error:
                sweep.broken = str(error)

    interrupted = _run(run)
    if as_json:
        print_json({**attrs.asdict(sweep), "interrupted": interrupted})
    else:
        sweep.print(f"{source} to {target}")
    if interrupted:
        return _INTERRUPTED
    return int(sweep.has_failed("corrupt", "unknown", "failed"))


def _end(text: str, file: Path | None) -> tuple[Backend, bool]:
    other, colon, name = text.rpartition(":")
    found = configuration(Path(other) if colon else file)
    (backend,) = chosen(found, [name])
    return backend, found.is_framed


async def _copy(src: OpenTier, dst: OpenTier, prefix: str, sweep: Sweep) -> None:
    progress = _Progress(f"copy {src.name} to {dst.name}")
    silent = 0
    with progress.open():
        await progress.expect(src, prefix)
        async for batch in src.batches(prefix):
            values = []
            read = await src.read(batch)
            for item in read:
                if item.status is GetStatus.HIT:
                    values.append((item.name, _as_stored_by(dst, item)))
                elif item.status is GetStatus.MISS:
                    sweep.count(item.reason or "gone")
                else:
                    outcome = "corrupt" if item.status is GetStatus.CORRUPT else "unknown"
                    sweep.note(outcome, item.name, item.reason)
            missing = src.name if _is_silent(read) else ""
            del read
            if not await _put(dst, values, sweep):
                missing = dst.name
            progress.advance(sum(stored.stored_bytes for stored in batch))
            silent = silent + 1 if missing else 0
            if silent == _MAX_SILENT:
                sweep.broken = f"{missing} does not answer"
                return


def _as_stored_by(dst: OpenTier, item: Found) -> memoryview:
    """Return the bytes to write: the frame as it is, or a new one around a bare value."""
    payload = payload_of(item.name, item.stored)
    if payload.nbytes != item.stored.nbytes or not dst.is_framed:
        return item.stored
    return sealed(item.name, bytes(payload), ttl_s=None, is_framed=True)


async def _put(dst: OpenTier, values: Sequence[tuple[str, memoryview]], sweep: Sweep) -> bool:
    """Write what `dst` does not hold yet; return whether there was an answer for any value."""
    sizes = await dst.sizes([name for name, _ in values])
    if values and all(status is GetStatus.UNKNOWN for status, _, _ in sizes.values()):
        for name, _ in values:
            sweep.note("failed", name, sizes[name][2])
        return False
    alike = [of for of in values if sizes[of[0]][:2] == (GetStatus.HIT, of[1].nbytes)]
    held = {name for name, why in (await _compared(dst, alike)).items() if not why}
    sweep.counts["passed_over"] += len(held)
    return await _write(dst, [of for of in values if of[0] not in held], sweep)


async def _compared(dst: OpenTier, values: Sequence[tuple[str, memoryview]]) -> dict[str, str]:
    """Return name → how what `dst` holds differs from a value; empty if its payload is the same."""
    found = await dst.read(StoredName(name, stored.nbytes) for name, stored in values)
    return {
        name: _difference(item, payload_of(name, stored))
        for (name, stored), item in zip(values, found, strict=True)
    }


def _difference(item: Found, payload: memoryview) -> str:
    match item.status:
        case GetStatus.HIT:
            is_same = _alike(payload_of(item.name, item.stored), payload)
            return "" if is_same else "reads back wrong"
        case GetStatus.UNKNOWN:
            return f"not read back: {item.reason}"
        case GetStatus.MISS:
            return f"reads back as {item.reason or 'gone'}"
        case _:
            return f"reads back as {item.status}"


def _alike(one: memoryview, other: memoryview) -> bool:
    # Comparing two memoryviews unpacks every item in CPython < 3.15; this compares memory.
    return one.nbytes == other.nbytes and bytes(one).startswith(other)


async def _write(dst: OpenTier, values: Sequence[tuple[str, memoryview]], sweep: Sweep) -> bool:
    """Write values, and verify them; return whether there was an answer for any of them."""
    outcomes = await dst.write(values)
    written = []
    for value, outcome in zip(values, outcomes, strict=True):
        if outcome.status is PutStatus.STORED:
            written.append(value)
        else:
            sweep.note("failed", value[0], str(outcome))
    differences = await _compared(dst, written)
    for name, stored in written:
        if why := differences[name]:
            sweep.note("failed", name, f"written, but {why}")
        else:
            sweep.count("copied", stored.nbytes)
    return not values or any(of.status is not PutStatus.UNKNOWN for of in outcomes)


def _run(task: Any) -> bool:
    """Run a task; return whether Ctrl-C has ended it."""
    try:
        anyio.run(task)
    except KeyboardInterrupt:
        return True
    return False
