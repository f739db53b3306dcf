"""`tieredkv doctor`: are the configured tiers there, how fast are they, and what is not right?"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import attrs
import click

from tieredkv.backends import Backend, HFBucketBackend, StoredName, ValkeyBackend
from tieredkv.cli.charts import milliseconds
from tieredkv.cli.config import heard
from tieredkv.cli.key_names import what_is_wrong_with
from tieredkv.cli.options import as_json, config_file, print_json, tier_names
from tieredkv.cli.repeats import Repeats
from tieredkv.cli.sizes import SIZE, size_text
from tieredkv.cli.tiers import OpenTier, chosen, configuration, open_tier, payload_of, sealed
from tieredkv.config import KiB, L1Config, MiB
from tieredkv.errors import TieredKVError
from tieredkv.pool.limits import memory_limits
from tieredkv.results import DeleteStatus, GetStatus, PutStatus

__all__ = ["doctor"]

Severity: TypeAlias = Literal["error", "warning", "note"]
ResultT = TypeVar("ResultT")

_ROUNDS: Final = 5
_SAMPLE_VALUES: Final = 256
_SAMPLE_BYTES: Final = 64 * MiB
_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "cyan"}


@attrs.frozen
class Finding:
    """Something that is not, or may not be, as it should.

    Attributes:
        severity: ``"error"``: the tier does not work as configured.
        tier: Which; empty for what concerns all of it.
        text: What, and what to do.
    """

    severity: Severity
    tier: str
    text: str


@attrs.define
class Examination:
    """What was measured of one tier, in seconds, each the best of a few.

    Attributes:
        tier: Its name.
        type: What kind of backend.
        times_s: Operation → duration.
        details: What it says of itself.
    """

    tier: str
    type: str
    times_s: dict[str, float] = attrs.field(factory=dict)
    details: dict[str, Any] = attrs.field(factory=dict)


@click.command(
    epilog="Exit status: 0 no errors were found (maybe warnings), 1 some were, 2 usage mistake, "
    "130 Ctrl-C."
)
@config_file
@tier_names
@click.option(
    "--value-size", "nbytes", type=SIZE, default=64 * KiB, help="Of the value written.  [64KiB]"
)
@click.option("--read-only", is_flag=True, help="Write nothing: rights to write stay unknown.")
@click.option(
    "--key-function",
    metavar="MODULE:NAME",
    help="A function without arguments that returns keys of some content: are they the same in "
    "every process?",
)
@as_json
def doctor(
    file: Path | None,
    tiers: tuple[str, ...],
    nbytes: int,
    key_function: str | None,
    *,
    read_only: bool,
    as_json: bool,
) -> int:
    """Connect to each tier, measure it with a value of its own, and say what is not right.

    The value has a random name, and is deleted again. Up to 256 of the values that are there, or
    64 MiB, are read and compared.
    """
    findings: list[Finding] = []
    if key_function is not None:
        if not re.fullmatch(r"[\w.]+:\w+", key_function):
            raise click.UsageError(f"--key-function={key_function}: give MODULE:NAME")
        if why := what_is_wrong_with(key_function):
            findings.append(Finding("error", "", why))
    with heard() as warnings:
        found = configuration(file)
        backends = chosen(found, tiers)
        findings += [Finding("warning", "", text) for text in (*found.warnings, *warnings)]
    findings += _memory(found.l1)
    if not found.is_framed:
        findings.append(
            Finding("note", "", "integrity='size': wrong bytes of the right size go unnoticed")
        )
    examined: list[Examination] = []

    async def run() -> None:
        for backend in backends:
            visit = Examination(backend.name, type(backend).__name__)
            examined.append(visit)
            findings.extend(
                await _examine(
                    backend, visit, nbytes=nbytes, is_framed=found.is_framed, read_only=read_only
                )
            )

    anyio.run(run)
    if as_json:
        document = {
            "tiers": [attrs.asdict(visit) for visit in examined],
            "findings": [attrs.asdict(finding) for finding in findings],
        }
        print_json(document)
    else:
        _print(examined, findings)
    return int(any(finding.severity == "error" for finding in findings))


def _memory(l1: L1Config) -> Iterator[Finding]:
    wanted_bytes = l1.capacity + l1.overflow
    for name, limit_bytes in memory_limits().items():
        if wanted_bytes > limit_bytes:
            yield Finding(
                "error" if name == "memory.max" else "warning",
                "l1",
                f"capacity and overflow are {size_text(wanted_bytes)}, but {name} is "
                f"{size_text(limit_bytes)}: lower l1.capacity, or the system may end the process",
            )


async def _examine(
    backend: Backend, visit: Examination, *, nbytes: int, is_framed: bool, read_only: bool
) -> list[Finding]:
    findings: list[Finding] = []
    with heard() as warnings:
        try:
            began = time.perf_counter()
            async with open_tier(backend, is_framed=is_framed) as tier:
                visit.times_s["open"] = time.perf_counter() - began
                findings += await _probe(tier, visit, nbytes=nbytes, read_only=read_only)
                findings += await _identity(backend, visit, warnings)
                findings += await _largest(backend)
                findings += await _repeats(tier)
                status = await backend.status()
                visit.details = {**status.details, **visit.details}
                if not status.is_healthy and not findings:
                    findings.append(Finding("error", backend.name, status.reason))
        except TieredKVError as error:
            findings.append(Finding("error", backend.name, str(error)))
    findings += [Finding("warning", backend.name, text) for text in warnings]
    start = f"{backend.name}: "
    return [
        attrs.evolve(finding, text=" ".join(finding.text.removeprefix(start).split()))
        for finding in findings
    ]


async def _probe(
    tier: OpenTier, visit: Examination, *, nbytes: int, read_only: bool
) -> list[Finding]:
    """Write a value, look it up, read and delete it, a few times over."""
    name = f"tieredkv-doctor-{secrets.token_hex(8)}"
    status, _, why = (await _timed(visit, "stat", lambda: tier.sizes([name])))[name]
    if status is GetStatus.UNKNOWN:
        return [Finding("error", tier.name, why)]
    if read_only:
        return []
    stored = sealed(name, secrets.token_bytes(nbytes), ttl_s=None, is_framed=tier.is_framed)
    wanted = [StoredName(name, stored.nbytes)]
    findings = []
    for _ in range(_ROUNDS):
        (written,) = await _timed(visit, "write", lambda: tier.write([(name, stored)]))
        if written.status is not PutStatus.STORED:
            return [Finding("error", tier.name, str(written.error or f"write: {written}"))]
        (got,) = await _timed(visit, "read", lambda: tier.read(wanted))
        if got.status is not GetStatus.HIT or got.stored != stored:
            why = got.reason or f"what was just written reads back as {got.status}"
            findings.append(Finding("error", tier.name, why))
            break
    (gone,) = await _timed(visit, "delete", lambda: tier.backend.delete_many([name]))
    if gone.status is not DeleteStatus.DELETED:
        why = str(gone.error or f"delete: {gone.status}")
        findings.append(Finding("error", tier.name, f"{why} ({name} may be left)"))
    return findings


async def _timed(
    visit: Examination, operation: str, call: Callable[[], Awaitable[ResultT]]
) -> ResultT:
    began = time.perf_counter()
    result = await call()
    duration_s = time.perf_counter() - began
    visit.times_s[operation] = min(visit.times_s.get(operation, duration_s), duration_s)
    return result


async def _identity(backend: Backend, visit: Examination, warnings: Sequence[str]) -> list[Finding]:
    """Say whose token a bucket is opened with, and what is not right with that."""
    if not isinstance(backend, HFBucketBackend):
        return []
    access = await backend.access()
    visit.details |= {
        "user": access.user,
        "token_role": access.role,
        "bucket_is_private": access.is_private,
    }
    findings = []
    if access.role == "read":
        text = f"the token of {access.user} may only read: give one that may write"
        findings.append(Finding("warning", backend.name, text))
    namespace = backend.handle.bucket_id.partition("/")[0]
    if access.user not in (None, namespace):
        text = f"the token is that of {access.user}, the bucket is in the namespace {namespace}"
        findings.append(Finding("note", backend.name, text))
    if access.is_private is False and not any("is public" in text for text in warnings):
        text = f"{backend.handle.bucket_id} is public: everybody can read what is cached there"
        findings.append(Finding("warning", backend.name, text))
    return findings


async def _largest(backend: Backend) -> list[Finding]:
    """Compare what the server takes with what the tier would send."""
    largest_bytes = backend.capabilities.max_value_bytes
    if not isinstance(backend, ValkeyBackend) or largest_bytes is None:
        return []
    limit_bytes = await backend.largest_bytes()
    if limit_bytes is None or limit_bytes >= largest_bytes:
        return []
    return [
        Finding(
            "warning",
            backend.name,
            f"proto-max-bulk-len is {size_text(limit_bytes)}: larger values, up to "
            f"{size_text(largest_bytes)}, are refused; raise it in the server's configuration",
        )
    ]


async def _repeats(tier: OpenTier) -> list[Finding]:
    """Look for content that is there under several names."""
    if not tier.backend.capabilities.listable:
        return []
    repeats, values, nbytes = Repeats(), 0, 0
    try:
        async for batch in tier.batches():
            for item in await tier.read(batch):
                repeats.add(item.name, payload_of(item.name, item.stored))
                nbytes += item.stored.nbytes
            values += len(batch)
            if values >= _SAMPLE_VALUES or nbytes >= _SAMPLE_BYTES:
                break
    except TieredKVError as error:
        text = f"what it holds was not looked at: {error}"
        return [Finding("note", tier.name, text)]
    return [Finding("warning", tier.name, str(repeats))] if repeats.repeated else []


def _print(examined: Sequence[Examination], findings: Sequence[Finding]) -> None:
    for visit in examined:
        times = ", ".join(
            f"{operation} {milliseconds(duration_s)} ms"
            for operation, duration_s in visit.times_s.items()
        )
        click.echo(f"{visit.tier} ({visit.type}): {times or 'not reached'}")
    for finding in findings:
        label = click.style(finding.severity, fg=_COLOURS[finding.severity])
        place = f"{finding.tier}: " if finding.tier else ""
        click.echo(f"{label}: {place}{finding.text}")
    if not findings:
        click.echo("Nothing is wrong.")
