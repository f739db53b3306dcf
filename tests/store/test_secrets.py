"""Passwords and tokens: in no text that a store gives out, whatever goes wrong."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from tieredkv import TieredStore
from tieredkv.backends import Backend, HFBucketBackend, ValkeyBackend
from tieredkv.errors import TieredKVError
from tieredkv.testing.valkey import ValkeyServer, free_port

pytestmark = [pytest.mark.anyio, pytest.mark.network]

CANARY = "hf_canary5f1e0c"


def unreachable_valkey() -> Backend:
    return ValkeyBackend(f"valkey://user:{CANARY}@127.0.0.1:{free_port()}", connect_timeout_s=0.3)


def unreachable_hub() -> Backend:
    endpoint = f"http://127.0.0.1:{free_port()}"
    return HFBucketBackend("hf://buckets/org/bucket/kv", token=CANARY, endpoint=endpoint)


@pytest.mark.parametrize("make", [unreachable_valkey, unreachable_hub])
async def test_a_tier_that_cannot_be_reached_does_not_tell(
    make: Callable[[], Backend], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = make()
    said = [repr(backend)]
    async with TieredStore("1MiB", [backend]) as store:
        said.append(repr(store))
        said.append(repr(await store.put("key", b"value")))
        said.append(repr(await store.delete("key")))
        with await store.get_many(["absent"]) as results:
            said += [repr(results[0]), repr(results[0].error), str(results[0].error)]
        said += [repr(await store.status()), repr(store.stats())]
    said += [record.getMessage() for record in caplog.records if record.name.startswith("tieredkv")]
    said += capfd.readouterr()
    assert CANARY not in "\n".join(said)


async def test_a_refused_password_is_not_told(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with ValkeyServer(password="right") as server, pytest.raises(TieredKVError) as caught:
        async with TieredStore("1MiB", [ValkeyBackend(server.url, password=CANARY)]):
            pass
    said = ["".join(traceback.format_exception(caught.value)), str(pickle.dumps(caught.value))]
    said += [record.getMessage() for record in caplog.records]
    said += capfd.readouterr()
    assert CANARY not in "\n".join(said)
