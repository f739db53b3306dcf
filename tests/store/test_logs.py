"""What is logged: nothing unless somebody listens, and nothing over and over."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from tests.store.stoppable import StoppableDisk
from tieredkv import TieredStore
from tieredkv.observe import CacheEvent
from tieredkv.observe.logs import Rarely, some_of
from tieredkv.results import GetStatus

pytestmark = pytest.mark.anyio

PROGRAM = """
import anyio
from tieredkv import TieredStore

def fail(event):
    raise RuntimeError

async def main():
    async with TieredStore("1MiB") as store:
        store.subscribe(fail)
        await store.put("a", b"1")

anyio.run(main)
"""


def test_a_host_that_does_not_listen_sees_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, timeout=60, capture_output=True
    )
    assert ran.stdout == ran.stderr == b""


async def test_a_message_that_repeats_for_each_key_is_logged_once(
    store: TieredStore, disk: StoppableDisk, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{number}" for number in range(50)]
    await store.put_many([(name, b"value") for name in names])
    await store.clear()
    for name in names:
        damaged = bytearray(disk.file_of(name).read_bytes())
        damaged[0] ^= 1
        disk.file_of(name).write_bytes(damaged)
    with await store.get_many(names) as results:
        assert not any(result.object for result in results)
    (record,) = caplog.records
    assert "is corrupt" in record.message
    fields = vars(record)
    assert (fields["tier"], fields["operation"], fields["outcome"]) == ("disk", "read", "corrupt")
    assert store.stats().tiers["disk"].outcomes["read", "corrupt"] == 50


async def test_values_of_another_size_than_asked_for_are_logged_once_and_counted(
    store: TieredStore, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{number}" for number in range(20)]
    await store.put_many([(name, b"value") for name in names])
    await store.clear()
    with await store.get_many(names, sizes=[7] * 20) as results:
        assert {result.status for result in results} == {GetStatus.REJECTED}
    assert await store.get_into(names[0], bytearray(3)) is None
    (record,) = caplog.records
    assert record.message == "tier disk: '0': the stored value has 5 bytes, 7 were asked for"
    assert (record.levelname, vars(record)["tier"]) == ("WARNING", "disk")
    assert store.stats().tiers["disk"].outcomes["read", "wrong_size"] == 21


async def test_a_tier_that_fails_is_named_in_the_record(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(names: object) -> list[object]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(store._parts().tiers[0].backend, "stat_many", fail)
    for _ in range(2):
        assert not await store.exists("a")
    defect, failing = caplog.records
    assert defect.exc_info is not None
    assert {vars(record)["tier"] for record in caplog.records} == {"disk"}
    assert {vars(record)["operation"] for record in caplog.records} == {"stat"}
    assert failing.levelno == logging.WARNING


async def test_a_listener_that_always_raises_is_told_of_once(
    store: TieredStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: CacheEvent) -> None:
        raise RuntimeError("a defect")

    store.subscribe(fail)
    for name in "abcdef":
        await store.put(name, b"1")
    assert [record.message for record in caplog.records] == ["a listener raised on stored"]


def test_what_was_left_out_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    rarely = Rarely(logging.getLogger("tieredkv.test"))
    for number in range(5):
        rarely.log("number %d", number, tier="disk")
    now_s += 61
    rarely.log("number %d", 5, tier="disk")
    assert [record.message for record in caplog.records] == [
        "number 0",
        "number 5 (and 4 more since the last time)",
    ]
    assert caplog.records[0].funcName == "test_what_was_left_out_is_counted"


def test_a_long_list_of_names_is_cut() -> None:
    assert some_of(("a", "b")) == "'a', 'b'"
    assert some_of(tuple("abcdefghijkl")).endswith("'j' and 2 more")
