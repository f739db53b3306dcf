"""`BlockingTieredStore`: the calls of `TieredStore` for threads, and how it ends."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import (
    BlockingTieredStore,
    DeleteStatus,
    GetStatus,
    ObjectKey,
    PutStatus,
    TieredStore,
    ValueInfo,
)
from tieredkv.blocking import EventLoop
from tieredkv.config import MiB
from tieredkv.errors import ConfigError, KeyFormatError, PutFailedError, StoreClosedError
from tieredkv.testing.content import gist

KEY = ObjectKey("llama", 0xFF, b"\x00\x01")


@pytest.fixture
def disk(tmp_path: Path) -> StoppableDisk:
    return StoppableDisk(tmp_path / "disk")


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def store(disk: StoppableDisk, request: pytest.FixtureRequest) -> Iterator[BlockingTieredStore]:
    loop: EventLoop = request.param
    with BlockingTieredStore("4MiB", [disk], event_loop=loop) as opened:
        yield opened


def test_it_has_the_calls_of_the_async_store_with_the_same_arguments() -> None:
    for name, method in inspect.getmembers(TieredStore, inspect.isfunction):
        if name.startswith("_"):
            continue
        twin = getattr(BlockingTieredStore, "close" if name == "aclose" else name)
        assert list(inspect.signature(twin).parameters.values()) == list(
            inspect.signature(method).parameters.values()
        ), name


def test_a_second_opening_is_refused_and_leaves_the_first_alone(
    store: BlockingTieredStore,
) -> None:
    with pytest.raises(StoreClosedError, match="make a new one"):
        store.__enter__()
    assert store.put("key", b"bytes").ok


def test_values_go_in_and_come_back(store: BlockingTieredStore) -> None:
    assert store.put(KEY, b"bytes").ok
    assert [result.ok for result in store.put_many([("a", b"1"), ("b", b"22")])] == [True, True]
    with store.reserve("c", 3) as slot:
        slot.view[:] = b"333"
    assert slot.result is not None
    assert slot.result.ok
    assert store.get_bytes(KEY) == b"bytes"
    assert store.clear(dry_run=True) == {"l1": 4}
    assert store.clear() == {"l1": 4}
    assert store.get_nowait(KEY) is None
    with store.get(KEY) as lease:  # type: ignore[union-attr]
        assert (lease.tier, bytes(lease)) == ("disk", b"bytes")
    out = bytearray(2)
    assert store.get_into("b", out) == 2
    assert out == b"22"
    assert [r.status for r in store.get_into_many([("a", bytearray(1)), ("z", out)])] == [
        GetStatus.HIT,
        GetStatus.MISS,
    ]
    with store.get_many(iter(["a", "z", "c"]), sizes=[1, None, None]) as results:
        assert [bytes(r.object) if r.object else None for r in results] == [b"1", None, b"333"]
    assert store.stat("a") == ValueInfo(1, "l1")
    assert store.stat_many(["z"])[0].status is GetStatus.MISS
    assert store.exists_many(["a", "z"]) == [store.exists("a"), store.exists("z")] == [True, False]
    assert store.match_prefix(["a", "b", "z", "c"]) == 2
    assert set(store.keys("disk")) == {KEY, "a", "b", "c"}
    assert store.delete("a").status is DeleteStatus.DELETED
    assert [r.status for r in store.delete_many(["a", "b"])] == ["absent", "deleted"]
    assert store.flush().ok
    assert store.status()["is_healthy"]
    assert store.stats().l1.leases == 0


def test_a_look_up_and_a_prefetch(store: BlockingTieredStore) -> None:
    store.put_many([("a", b"1"), ("b", b"22")])
    store.clear()
    with store.lookup(["a", "z", "b"], owner="me") as found:
        assert found.hits == (True, False, True)
        assert found.prefix_length == 1
        assert found.results[0].tier == "disk"
        assert store.delete("a").status is DeleteStatus.PINNED
        with found.load() as results:
            assert [bytes(r.object) for r in results if r.object] == [b"1", b"22"]
    assert store.delete("a").status is DeleteStatus.DELETED
    store.clear()
    assert store.prefetch(["b"], policy="full").prefix_length == 1
    with store.get_nowait("b") as lease:  # type: ignore[union-attr]
        assert bytes(lease) == b"22"


def test_what_is_wrong_raises_here(store: BlockingTieredStore) -> None:
    with pytest.raises(KeyFormatError):
        store.get("")
    with pytest.raises(TypeError, match="encode it"):
        store.put("key", "text")
    with pytest.raises(ConfigError, match="event_loop='twisted'"):
        BlockingTieredStore("4MiB", event_loop="twisted")  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError), store.reserve("key", 3):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), store.lookup(["key"]):
        raise KeyboardInterrupt
    assert not store.exists("key")
    assert store.stats().l1.used_bytes == 0


def test_a_failed_put_raises_if_it_shall(disk: StoppableDisk) -> None:
    with BlockingTieredStore("4MiB", [disk], on_put_failure="raise") as store:
        with (
            disk.failing(OSError(5, "Input/output error")),
            pytest.raises(PutFailedError) as caught,
        ):
            store.put("key", b"bytes")
        assert caught.value.result.tiers["disk"].status is PutStatus.FAILED


def test_many_threads_share_a_store(store: BlockingTieredStore) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(20):
            key, value = f"{number}-{turn}", f"{number} {turn}".encode() * 100
            store.put(key, value)
            with store.get(key) as lease:  # type: ignore[union-attr]
                if lease.view != value:
                    wrong.append(key)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert store.stats().l1.leases == 0


def test_events_are_told(store: BlockingTieredStore) -> None:
    kinds: list[str] = []
    subscription = store.subscribe(lambda event: kinds.append(event.kind))
    store.put("key", b"bytes")
    store.delete("key")
    subscription.cancel()
    assert kinds == ["stored", "deleted"]


def test_a_closed_store_says_so(store: BlockingTieredStore) -> None:
    store.put("key", b"bytes")
    lease = store.get("key")
    assert lease is not None
    assert store.close().ok
    assert store.close().ok
    assert bytes(lease) == b"bytes"
    lease.release()
    with pytest.raises(StoreClosedError):
        store.get("key")
    with pytest.raises(StoreClosedError):
        store.reserve("key", 1).__enter__()
    assert not [t for t in threading.enumerate() if "portal" in t.name.lower()]


def test_a_store_that_cannot_open_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    store = BlockingTieredStore("4MiB", [StoppableDisk(file)])
    with pytest.raises(Exception, match="disk: open"):
        store.__enter__()
    with pytest.raises(StoreClosedError):
        store.stats()


def test_an_interrupted_call_has_ended_when_it_raises(
    store: BlockingTieredStore, disk: StoppableDisk
) -> None:
    value = b"v" * MiB
    store.put("key", value)
    store.clear()
    disk.reads.clear()
    out = bytearray(MiB)

    def interrupt() -> None:
        while not disk.reads:
            pass
        signal.raise_signal(signal.SIGINT)
        disk.let_go()

    with disk.stopped():
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            store.get_into("key", out)
        interrupter.join()
    assert gist(out) == gist(value)  # a worker was at it: nobody returned before it had done
    assert gist(store.get_bytes("key")) == gist(value)
    assert store.stats().l1.leases == 0


def test_one_that_is_interrupted_as_it_begins_has_ended_too(
    store: BlockingTieredStore, disk: StoppableDisk
) -> None:
    value = b"v" * MiB
    store.put("key", value)
    store.clear()
    disk.reads.clear()
    out = bytearray(MiB)
    portal = store._portal
    assert portal is not None
    start = portal.start_task_soon

    def begun(function: Any) -> None:
        patched.undo()
        start(function)
        while not disk.reads:
            time.sleep(0.001)
        threading.Timer(0.2, disk.let_go).start()
        raise KeyboardInterrupt

    with disk.stopped(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(portal, "start_task_soon", begun)
        with pytest.raises(KeyboardInterrupt):
            store.get_into("key", out)
    assert gist(out) == gist(value)


PROGRAM = """
import atexit, signal, sys, threading, time
from tieredkv import BlockingTieredStore, WriteThrough
from tieredkv.backends import DiskBackend

policy = WriteThrough(require="none")
store = BlockingTieredStore("64MiB", [DiskBackend(sys.argv[1])], write_policy=policy)
store.__enter__()
for n in range(4):
    store.put(f"key-{n}", bytes([n]) * (1 << 20))
if sys.argv[2] == "interrupt":
    def interrupt():
        time.sleep(0.05)
        signal.raise_signal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    while True:
        store.get_bytes("key-1")
if sys.argv[2] == "more":  # when no thread can be started any more
    values = [(f"key-{n}", bytes([n]) * (1 << 20)) for n in range(4)]
    store.delete_many([key for key, _ in values])
    @atexit.register
    def put_more():
        store.put_many(values)
        print(store.flush().failed)
"""


@pytest.mark.parametrize("end", ["return", "interrupt", "more"])
def test_a_program_that_forgets_to_close_ends_and_loses_nothing(tmp_path: Path, end: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path), end],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if end == "interrupt":
        assert run.stderr.endswith("KeyboardInterrupt\n")
        assert run.stderr.count("Traceback") == 1
    else:
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout == ("{}\n" if end == "more" else "")
    with BlockingTieredStore("64MiB", [StoppableDisk(tmp_path)]) as store:
        for n in range(4):
            assert store.get_bytes(f"key-{n}") == bytes([n]) * (1 << 20)


FORKS = """
import os
import sys
from tieredkv import BlockingTieredStore
from tieredkv.errors import StoreClosedError

with BlockingTieredStore("4MiB") as store:
    store.put("key", b"value")
    child = os.fork()
    if not child:
        try:
            store.get("key")
        except StoreClosedError:
            sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.get_bytes("key"))
"""


def test_a_forked_child_finds_it_closed_and_ends() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS],  # of threads, in 3.12
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("7 b'value'\n", "")
