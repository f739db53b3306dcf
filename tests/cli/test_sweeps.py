"""`tieredkv copy` and `verify`: whole tiers, over real media, as a process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from tests.cli.terminal import on_a_terminal
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.testing import hub
from tieredkv.testing.valkey import ValkeyServer

pytestmark = pytest.mark.network

Command: TypeAlias = Callable[..., tuple[int, Any, str]]

COUNT = 70  # more than a batch
SIZE = 8 * KiB


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def config(
    tmp_path: Path, server: ValkeyServer, local_hub: hub.LocalHub, hub_environment: object
) -> Path:
    """A configuration with a tier of each kind, the first of which holds values."""
    server.command("FLUSHALL")
    file = tmp_path / "tiers.json"
    bucket = {
        "type": "hfbucket",
        "handle": f"hf://buckets/local/kv/{tmp_path.name}",
        "endpoint": local_hub.endpoint,
        "create_bucket": True,
    }
    tiers = [
        {"type": "disk", "path": str(tmp_path / "disk")},
        {"type": "valkey", "address": server.url, "key_prefix": tmp_path.name},
        bucket,
    ]
    file.write_text(json.dumps({"l1": "1MiB", "l2": tiers}))
    anyio.run(fill, tmp_path / "disk")
    return file


async def fill(path: Path, count: int = COUNT) -> None:
    async with TieredStore("4MiB", [DiskBackend(path)]) as store:
        for number in range(count):
            await store.put(f"key-{number}", number.to_bytes(2, "big") * (SIZE // 2))


@pytest.fixture
def command(config: Path, python: tuple[str, ...], environment: dict[str, str]) -> Command:
    def run(*arguments: str) -> tuple[int, Any, str]:
        done = subprocess.run(
            [*python, "-m", "tieredkv", *arguments, "--config", str(config), "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


def files_of(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file() and file.stat().st_size >= SIZE]


def counts(document: dict[str, Any]) -> dict[str, int]:
    return {outcome: times for outcome, times in document["counts"].items() if times}


@pytest.mark.parametrize("target", ["valkey", "hfbucket"])
def test_values_are_copied_from_tier_to_tier_and_once_only(command: Command, target: str) -> None:
    status, document, err = command("copy", "disk", target)
    assert (status, err) == (0, "")
    assert counts(document) == {"copied": COUNT}
    assert document["nbytes"] == COUNT * (SIZE + 64)
    status, document, _ = command("copy", "disk", target)
    assert (status, counts(document)) == (0, {"passed_over": COUNT})
    status, document, _ = command("verify", "--tier", target)
    assert (status, counts(document["tiers"][target])) == (0, {"whole": COUNT})


def test_values_are_copied_to_another_deployment(
    command: Command, tmp_path: Path, config: Path
) -> None:
    other = tmp_path / "other.json"
    spec = {"type": "disk", "name": "new", "path": str(tmp_path / "new")}
    other.write_text(json.dumps({"l1": "1MiB", "l2": [spec]}))
    status, document, _ = command("copy", f"{config}:disk", f"{other}:new", "--prefix", "key-1")
    assert (status, counts(document)) == (0, {"copied": 11})
    originals = {file.read_bytes() for file in files_of(tmp_path / "disk")}
    copies = {file.read_bytes() for file in files_of(tmp_path / "new")}
    assert copies < originals  # frames and all: their age is that of the values


def test_bare_values_get_frames_where_frames_are_wanted(
    command: Command, tmp_path: Path, config: Path
) -> None:
    bare = tmp_path / "bare.json"
    spec = {"type": "disk", "name": "new", "path": str(tmp_path / "new")}
    bare.write_text(json.dumps({"l1": "1MiB", "integrity": "size", "l2": [spec]}))
    anyio.run(store_bare, tmp_path / "new")
    status, document, _ = command("copy", f"{bare}:new", "disk")
    assert (status, counts(document)) == (0, {"copied": 1})
    status, document, _ = command("verify", "--tier", "disk", "--prefix", "bare")
    assert counts(document["tiers"]["disk"]) == {"whole": 1}


async def store_bare(path: Path) -> None:
    async with TieredStore("4MiB", [DiskBackend(path)], integrity="size") as store:
        await store.put("bare", bytes(SIZE))


def test_what_the_target_holds_wrong_is_written_again(command: Command, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    spec = {"type": "disk", "name": "new", "path": str(tmp_path / "new")}
    other.write_text(json.dumps({"l1": "1MiB", "l2": [spec]}))
    command("copy", "disk", f"{other}:new")
    (victim, *_) = files_of(tmp_path / "new")
    victim.write_bytes(b"\xff" + victim.read_bytes()[1:])
    status, document, _ = command("copy", "disk", f"{other}:new")
    assert (status, counts(document)) == (0, {"copied": 1, "passed_over": COUNT - 1})


def test_corrupt_and_foreign_values_are_counted_not_copied_and_not_deleted(
    command: Command, tmp_path: Path, server: ValkeyServer
) -> None:
    corrupt, foreign, *_ = files_of(tmp_path / "disk")
    corrupt.write_bytes(b"\xff\xff\xff" + corrupt.read_bytes()[3:])
    foreign.write_bytes(foreign.read_bytes()[:-64] + bytes(64))
    status, document, _ = command("verify", "--tier", "disk")
    expected = {"whole": COUNT - 2, "corrupt": 1, "foreign": 1}
    assert (status, counts(document["tiers"]["disk"])) == (1, expected)
    (problem,) = document["tiers"]["disk"]["problems"]
    assert problem.startswith("key-")
    assert problem.endswith(": corrupt")
    status, document, _ = command("copy", "disk", "valkey")
    assert status == 1
    assert counts(document) == {"copied": COUNT - 2, "corrupt": 1, "foreign": 1}
    assert corrupt.exists()
    assert foreign.exists()


def test_a_target_that_refuses_is_counted_with_its_reason(
    command: Command, server: ValkeyServer
) -> None:
    server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        status, document, _ = command("copy", "disk", "valkey", "--prefix", "key-1")
    finally:
        server.command("CONFIG", "SET", "maxmemory", "0")
    assert (status, counts(document)) == (1, {"failed": 11})
    assert "the server has no memory left" in document["problems"][0]


def test_a_copy_that_cannot_be_read_back_is_told_of_with_the_reason(
    command: Command, config: Path, server: ValkeyServer
) -> None:
    server.command("ACL", "SETUSER", "writer", "on", ">pw", "~*", "+@all", "-get", "-mget")
    tiers = json.loads(config.read_text())
    tiers["l2"][1] |= {"user": "writer", "password": "pw"}
    config.write_text(json.dumps(tiers))
    status, document, _ = command("copy", "disk", "valkey", "--prefix", "key-7")
    assert (status, counts(document)) == (1, {"failed": 1})
    (problem,) = document["problems"]
    assert problem.startswith("key-7: written, but not read back: valkey: read: ")
    assert "no permissions" in problem


def test_a_target_that_does_not_say_what_it_holds_is_not_written(
    command: Command, config: Path, server: ValkeyServer
) -> None:
    server.command("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-strlen", "-exists")
    tiers = json.loads(config.read_text())
    tiers["l2"][1] |= {"user": "blind", "password": "pw"}
    config.write_text(json.dumps(tiers))
    status, document, _ = command("copy", "disk", "valkey")
    assert (status, counts(document)) == (1, {"failed": COUNT})
    assert "valkey: stat: the ACL user lacks a right" in document["problems"][0]
    assert server.command("DBSIZE") == 0


def test_a_target_that_stops_answering_ends_a_copy_and_a_tier_that_is_gone_hides_no_other(
    command: Command, tmp_path: Path, config: Path
) -> None:
    with ValkeyServer() as server:
        tier = {"type": "valkey", "address": server.url, "request_timeout_s": 0.2}
        tiers = json.loads(config.read_text())["l2"][:1]
        config.write_text(json.dumps({"l1": "1MiB", "l2": [tier, *tiers]}))
        anyio.run(fill, tmp_path / "disk", 4 * 64)
        server.command("CLIENT", "PAUSE", "600000", "WRITE")
        status, document, _ = command("copy", "disk", "valkey")
        assert (status, counts(document)) == (1, {"failed": 3 * 64})
        assert document["broken"] == "valkey does not answer"
        server.kill()
        status, document, _ = command("verify")
    assert status == 1
    assert document["tiers"]["valkey"]["broken"].startswith("valkey: open: there is no connection")
    assert counts(document["tiers"]["disk"]) == {"whole": 4 * 64}
    assert document["tiers"]["disk"]["broken"] == ""


def test_a_copy_on_a_terminal_draws_its_progress(
    config: Path, python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "copy", "disk", "valkey", "--config", str(config)]
    status, drawn = on_a_terminal(command, environment | {"COLUMNS": "100", "LINES": "24"})
    assert status == 0
    assert "copy disk to valkey" in drawn
    assert "/s" in drawn
    assert f"disk to valkey: {COUNT} copied" in drawn


def test_so_does_verifying(
    config: Path, python: tuple[str, ...], environment: dict[str, str]
) -> None:
    command = [*python, "-m", "tieredkv", "verify", "--tier", "disk", "--config", str(config)]
    status, drawn = on_a_terminal(command, environment | {"COLUMNS": "100", "LINES": "24"})
    assert status == 0
    assert "verify disk" in drawn
    assert f"disk: {COUNT} whole" in drawn


@pytest.mark.parametrize("name", ["verify", "doctor", "ls"])
def test_ctrl_c_ends_a_command_that_waits_for_a_server(
    tmp_path: Path,
    python: tuple[str, ...],
    environment: dict[str, str],
    server: ValkeyServer,
    name: str,
) -> None:
    config = tmp_path / "patient.json"
    valkey = {"type": "valkey", "address": server.url, "connect_timeout_s": 3600}
    config.write_text(json.dumps({"l1": "16MiB", "l2": [valkey]}))
    line = [*python, "-m", "tieredkv", name, "--tier", "valkey", "--config", str(config)]
    before = connections_to(server)
    server.pause()
    try:
        with subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            while connections_to(server) == before:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    finally:
        server.resume()
    assert process.returncode == 130
    assert b"Traceback" not in out + err
    assert err.strip() == b""


def connections_to(server: ValkeyServer) -> int:
    """Return how many connections there are to the server's port."""
    return Path("/proc/net/tcp").read_text().count(f" 0100007F:{server.port:04X} 01 ")


def test_ctrl_c_leaves_a_copy_that_goes_on_when_it_is_run_again(
    command: Command,
    config: Path,
    python: tuple[str, ...],
    environment: dict[str, str],
    server: ValkeyServer,
) -> None:
    line = [*python, "-m", "tieredkv", "copy", "disk", "valkey", "--config", str(config)]
    server.command("CLIENT", "PAUSE", "600000", "WRITE")
    try:
        with subprocess.Popen(
            [*line, "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            while b"cmd=set" not in server.command("CLIENT", "LIST"):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            server.command("CLIENT", "UNPAUSE")
            out, err = process.communicate()
    finally:
        server.command("CLIENT", "UNPAUSE")
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert json.loads(out)["interrupted"]
    status, document, _ = command("copy", "disk", "valkey")
    done = counts(document)
    assert (status, done.get("copied", 0) + done.get("passed_over", 0)) == (0, COUNT)


PEAK = """
import re, sys
from pathlib import Path
from tieredkv.cli import main
status = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(status)
"""


def test_the_memory_of_a_copy_does_not_grow_with_what_is_copied(
    tmp_path: Path, python: tuple[str, ...], environment: dict[str, str]
) -> None:
    async def fill_with_large_values() -> None:
        async with TieredStore("64MiB", [DiskBackend(tmp_path / "large")]) as store:
            for number in range(20):
                (await store.put(f"key-{number}", bytes([number]) * (8 * MiB))).raise_for_status()

    anyio.run(fill_with_large_values)
    file = tmp_path / "large.json"
    tiers = [
        {"type": "disk", "name": name, "path": str(tmp_path / name)} for name in ("large", "new")
    ]
    file.write_text(json.dumps({"l1": "1MiB", "l2": tiers}))
    peaks = []
    for prefix in ("key-0", "key"):
        done = subprocess.run(
            [
                *python,
                "-c",
                PEAK,
                "copy",
                "large",
                "new",
                "--config",
                str(file),
                "--prefix",
                prefix,
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stderr) * KiB)
    assert peaks[1] - peaks[0] < 4 * 32 * MiB  # of 160 MiB that were read twice
    for name in ("large", "new"):
        shutil.rmtree(tmp_path / name)


def test_source_and_target_must_differ(
    tieredkv: Callable[..., tuple[int, str, str]], config: Path
) -> None:
    status, out, err = tieredkv("copy", "disk", "disk", "--config", str(config))
    assert (status, out) == (2, "")
    assert err == "tieredkv copy: SRC and DST are both disk\n"
