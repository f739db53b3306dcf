"""`tieredkv ls`, `stat`, `get`, `put`, `rm`: single values in the configured tiers."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import click

from tieredkv.backends import Backend, StoredName
from tieredkv.cli.options import as_json, config_file, print_json, tier_names
from tieredkv.cli.sizes import size_text
from tieredkv.cli.tiers import (
    checked_name,
    chosen,
    complain,
    configuration,
    open_tier,
    payload_of,
    sealed,
)
from tieredkv.config import seconds
from tieredkv.errors import TieredKVError
from tieredkv.results import DeleteOutcome, DeleteStatus, GetStatus, PutStatus, WriteOutcome

__all__ = ["get", "ls", "put", "rm", "stat"]


@click.command(epilog="Exit status: 0 done, 1 a tier failed, 2 usage mistake, 130 Ctrl-C.")
@config_file
@tier_names
@click.option("--prefix", default="", help="Only names that begin so.")
@as_json
def ls(file: Path | None, tiers: tuple[str, ...], prefix: str, *, as_json: bool) -> int:
    """List what the tiers hold: tier, stored bytes, wire name."""
    found = configuration(file)
    backends = chosen(found, tiers)

    async def run() -> int:
        separator, status = "[\n", 0
        for backend in backends:
            try:
                async with open_tier(backend, is_framed=found.is_framed) as tier:
                    async for stored in tier.names(prefix):
                        if as_json:
                            row = {
                                "tier": tier.name,
                                "stored_bytes": stored.stored_bytes,
                                "name": stored.name,
                            }
                            click.echo(f"{separator}  {json.dumps(row)}", nl=False)
                            separator = ",\n"
                        else:
                            click.echo(f"{tier.name}\t{stored.stored_bytes}\t{stored.name}")
            except TieredKVError as error:
                complain(error)
                status = 1
        if as_json:
            click.echo("[]" if separator == "[\n" else "\n]")
        return status

    return anyio.run(run)


@click.command(
    epilog="Exit status: 0 some tier holds each key, 1 none does, 2 usage mistake, 130 Ctrl-C."
)
@click.argument("names", metavar="KEY...", nargs=-1, required=True)
@config_file
@tier_names
@as_json
def stat(
    names: tuple[str, ...], file: Path | None, tiers: tuple[str, ...], *, as_json: bool
) -> int:
    """Say which tiers hold keys, and with how many bytes as stored.

    A key is given as its wire name, as `ls` prints it.
    """
    found = configuration(file)
    backends = chosen(found, tiers)
    wanted = [checked_name(name) for name in names]

    async def run() -> list[dict[str, Any]]:
        answers: dict[str, dict[str, tuple[GetStatus, int, str]]] = {}
        for backend in backends:
            try:
                async with open_tier(backend, is_framed=found.is_framed) as tier:
                    answers[tier.name] = await tier.sizes(wanted)
            except TieredKVError as error:
                answers[backend.name] = dict.fromkeys(wanted, (GetStatus.UNKNOWN, 0, str(error)))
        return [
            {
                "tier": tier,
                "name": name,
                "status": str(status),
                "stored_bytes": nbytes if status is GetStatus.HIT else None,
                "error": error,
            }
            for name in wanted
            for tier, (status, nbytes, error) in ((t, a[name]) for t, a in answers.items())
        ]

    rows = anyio.run(run)
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            held = row["error"] or (
                row["status"] if row["stored_bytes"] is None else size_text(row["stored_bytes"])
            )
            click.echo(f"{row['tier']}\t{held}\t{row['name']}")
    held_names = {row["name"] for row in rows if row["status"] == GetStatus.HIT}
    return 0 if held_names >= set(wanted) else 1


@click.command(epilog="Exit status: 0 done, 1 not found, wrong or failed, 2 usage mistake.")
@click.argument("name", metavar="KEY")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write there, all or nothing, instead of to standard output.",
)
@config_file
@tier_names
@as_json
def get(
    name: str, output: Path | None, file: Path | None, tiers: tuple[str, ...], *, as_json: bool
) -> int:
    """Write a value out: the first whole one that the tiers hold, in order.

    A key is given as its wire name, as `ls` prints it.
    """
    if as_json and output is None:
        raise click.UsageError("--json needs --output FILE: the value would be on standard output")
    found = configuration(file)
    backends = chosen(found, tiers)
    checked_name(name)

    async def run() -> tuple[str, bytes] | None:
        for backend in backends:
            try:
                async with open_tier(backend, is_framed=found.is_framed) as tier:
                    status, nbytes, reason = (await tier.sizes([name]))[name]
                    if status is GetStatus.HIT:
                        (item,) = await tier.read([StoredName(name, nbytes)])
                        status, reason = item.status, item.reason
                        if status is GetStatus.HIT:
                            return tier.name, bytes(payload_of(name, item.stored))
                    if status is not GetStatus.MISS or reason:
                        click.echo(f"{tier.name}: {status} {reason}".rstrip(), err=True)
            except TieredKVError as error:
                complain(error)
        return None

    answer = anyio.run(run)
    if answer is None:
        raise click.ClickException(f"{name}: no tier has a whole value")
    tier, value = answer
    if output is None:
        if sys.stdout is None:  # closed by the shell
            raise click.ClickException("standard output is closed")
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()
        return 0
    _write_whole(output, value)
    if as_json:
        print_json({"tier": tier, "name": name, "nbytes": len(value), "file": str(output)})
    return 0


@click.command(epilog="Exit status: 0 every tier has stored it, 1 one has not, 2 usage mistake.")
@click.argument("name", metavar="KEY")
@click.argument("source", metavar="FILE", type=click.File("rb"))
@click.option("--ttl", "ttl_s", type=float, metavar="SECONDS", help="When it is to expire.")
@config_file
@tier_names
@as_json
def put(
    name: str,
    source: Any,
    ttl_s: float | None,
    file: Path | None,
    tiers: tuple[str, ...],
    *,
    as_json: bool,
) -> int:
    """Store a FILE (- for standard input) as a value, in every tier or those that are named.

    A key is given as its wire name, as `ls` prints it.
    """
    found = configuration(file)
    backends = chosen(found, tiers)
    checked_name(name)
    if ttl_s is not None:
        seconds(ttl_s, field="--ttl")
        if not found.is_framed:
            raise click.UsageError("--ttl needs integrity='checksum': a bare value has no expiry")
    payload = source.read()
    stored = sealed(name, payload, ttl_s=ttl_s, is_framed=found.is_framed)

    async def run() -> dict[str, WriteOutcome]:
        outcomes = {}
        for backend in backends:
            try:
                async with open_tier(backend, is_framed=found.is_framed) as tier:
                    (outcomes[tier.name],) = await tier.write([(name, stored)])
            except TieredKVError as error:
                outcomes[backend.name] = WriteOutcome(PutStatus.FAILED, None, error)
        return outcomes

    outcomes = anyio.run(run)
    if as_json:
        answers = {
            tier: {"status": str(of.status), "detail": str(of.reason or of.error or "")}
            for tier, of in outcomes.items()
        }
        print_json({"name": name, "nbytes": len(payload), "tiers": answers})
    else:
        for tier, outcome in outcomes.items():
            click.echo(f"{tier}\t{outcome}\t{name}")
    return 0 if all(of.status is PutStatus.STORED for of in outcomes.values()) else 1


@click.command(epilog="Exit status: 0 they are gone, 1 a tier failed, 2 usage mistake.")
@click.argument("names", metavar="KEY...", nargs=-1, required=True)
@config_file
@tier_names
@as_json
def rm(names: tuple[str, ...], file: Path | None, tiers: tuple[str, ...], *, as_json: bool) -> int:
    """Delete keys from every tier, or from those that are named.

    A key is given as its wire name, as `ls` prints it. A running store keeps its copy in L1.
    """
    found = configuration(file)
    backends = chosen(found, tiers)
    wanted = list(dict.fromkeys(checked_name(name) for name in names))

    async def delete(backend: Backend) -> list[DeleteOutcome]:
        try:
            async with open_tier(backend, is_framed=found.is_framed):
                return await backend.delete_many(wanted)
        except TieredKVError as error:
            return [DeleteOutcome(DeleteStatus.FAILED, error)] * len(wanted)

    async def run() -> list[dict[str, Any]]:
        return [
            {
                "tier": backend.name,
                "name": name,
                "status": str(outcome.status),
                "error": str(outcome.error or ""),
            }
            for backend in backends
            for name, outcome in zip(wanted, await delete(backend), strict=True)
        ]

    rows = anyio.run(run)
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['tier']}\t{row['error'] or row['status']}\t{row['name']}")
    fine = {DeleteStatus.DELETED, DeleteStatus.ABSENT}
    return 0 if all(row["status"] in fine for row in rows) else 1


def _write_whole(path: Path, value: bytes) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(value)
                file.close()
                os.replace(file.name, path)  # noqa: PTH105 - as the rest of the temporary file
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
