"""Keys that another process makes otherwise: found by trying them, and by what they leave."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tieredkv import ObjectKey
from tieredkv.cli.repeats import Repeats

Command: TypeAlias = Callable[..., tuple[int, Any]]

KEYS = """
import hashlib
from tieredkv import ObjectKey

CHUNKS = [f"chunk {number} of a prompt" for number in range(8)]

def hashed(chunk):
    return ObjectKey("llama", 0, (hash(chunk) % 2**64).to_bytes(8, "big"))

def digested(chunk):
    return ObjectKey("llama", 0, hashlib.sha256(chunk.encode()).digest())

def changing():
    print("what it prints is no answer")
    return list(map(hashed, CHUNKS))

def constant():
    return list(map(digested, CHUNKS))

def one():
    return "key"

def nothing():
    return ()

def failing():
    raise KeyError("no chunks")
"""

WORKER = """
import sys, anyio, keys
from tieredkv import TieredStore
from tieredkv.backends import DiskBackend

async def put_all(path, key_of):
    async with TieredStore("4MiB", [DiskBackend(path)]) as store:
        for chunk in keys.CHUNKS:
            assert (await store.put(key_of(chunk), chunk.encode() * 400)).ok

anyio.run(put_all, sys.argv[1], getattr(keys, sys.argv[2]))
"""


@pytest.fixture
def command(tmp_path: Path, python: tuple[str, ...], environment: dict[str, str]) -> Command:
    """Run a command beside the module with the key functions."""
    (tmp_path / "keys.py").write_text(KEYS)
    file = tmp_path / "tiers.json"
    tier = {"type": "disk", "path": str(tmp_path / "kv")}
    file.write_text(json.dumps({"l1": "1MiB", "l2": [tier]}))

    def run(*arguments: str, as_json: bool = True) -> tuple[int, Any]:
        done = subprocess.run(
            [*python, "-m", "tieredkv", *arguments, "--config", str(file)] + ["--json"] * as_json,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        out = json.loads(done.stdout) if as_json and done.stdout else done.stdout + done.stderr
        return done.returncode, out

    return run


@pytest.fixture
def two_workers(
    tmp_path: Path, python: tuple[str, ...], environment: dict[str, str]
) -> Callable[[str], None]:
    """Let two processes with hash seeds of their own put the same content."""

    def run(key_of: str) -> None:
        for seed in ("1", "2"):
            subprocess.run(
                [*python, "-c", WORKER, str(tmp_path / "kv"), key_of],
                env=environment | {"PYTHONHASHSEED": seed},
                cwd=tmp_path,
                check=True,
            )

    return run


def findings(document: dict[str, Any]) -> list[str]:
    return [f"{f['severity']}: {f['text']}" for f in document["findings"]]


def test_a_key_function_that_changes_between_processes_is_an_error(command: Command) -> None:
    status, document = command("doctor", "--key-function", "keys:changing")
    assert status == 1
    (error,) = findings(document)
    assert error.startswith("error: keys:changing names the same content llama@00000000@0@")
    assert "make keys of a digest" in error


@pytest.mark.parametrize("name", ["constant", "one"])
def test_a_key_function_that_does_not_is_well(command: Command, name: str) -> None:
    status, document = command("doctor", "--key-function", f"keys:{name}")
    assert (status, findings(document)) == (0, [])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("keys:nothing", "keys:nothing returned no key (it must be a function without arguments"),
        ("keys:failing", "keys:failing failed: KeyError: 'no chunks' (it must be a function"),
        ("keys:digested", "keys:digested failed: TypeError: digested() missing 1 required"),
        ("no_such:keys", "no_such:keys failed: ModuleNotFoundError: No module named 'no_such'"),
    ],
)
def test_what_is_no_key_function_is_told(command: Command, function: str, message: str) -> None:
    status, document = command("doctor", "--key-function", function)
    assert status == 1
    assert findings(document)[0].startswith(f"error: {message}")


def test_a_key_function_has_a_module_and_a_name(command: Command) -> None:
    status, out = command("doctor", "--key-function", "keys", as_json=False)
    assert status == 2
    assert out == "tieredkv doctor: --key-function=keys: give MODULE:NAME\n"


def test_what_such_keys_leave_in_a_tier_is_found(
    command: Command, two_workers: Callable[[str], None]
) -> None:
    two_workers("hashed")
    status, document = command("doctor", "--read-only")
    assert status == 0
    (warning,) = findings(document)
    assert warning.startswith("warning: 8 of 16 values have the content of another name, such as")
    assert command("verify")[1]["tiers"]["disk"]["repeated"] == 8
    assert "8 of 16 values have the content of another name" in command("verify", as_json=False)[1]


def test_keys_that_name_their_content_leave_nothing_to_find(
    command: Command, two_workers: Callable[[str], None]
) -> None:
    two_workers("digested")
    assert findings(command("doctor")[1]) == []
    assert command("verify")[1]["tiers"]["disk"]["repeated"] == 0


def test_only_the_hash_may_differ_between_names_that_are_compared() -> None:
    repeats, payload = Repeats(), memoryview(bytes(4096))
    for key in (
        *(
            ObjectKey("llama", rank, b"a", group, salt)
            for rank, group, salt in [(0, 0, ""), (1, 0, "")]
        ),
        *(
            ObjectKey("llama", 0, b"a", 1),
            ObjectKey("llama", 0, b"a", 0, "me"),
            ObjectKey("m", 0, b"a"),
        ),
    ):
        repeats.add(key.wire_name, payload)
    repeats.add("a text", payload)
    repeats.add("a text", payload)
    assert (repeats.seen, repeats.repeated, str(repeats)) == (7, 0, "")
    repeats.add(ObjectKey("llama", 0, b"b", 0, "me").wire_name, payload)
    repeats.add("another text", payload)
    repeats.add("a third", payload[:100])
    assert (repeats.seen, repeats.repeated) == (9, 2)
    assert repeats.example == ("llama@00000000@0@61@me", "llama@00000000@0@62@me")
