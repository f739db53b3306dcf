"""Programs over a connection that changes bytes; ``python -m … NAME URL``, see `started`.

Each asks its parent, which has the proxy, for one fault after another.
"""

from __future__ import annotations

import faulthandler
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio

from tests.store.inside import inside
from tieredkv import GetStatus, PutStatus, TieredStore
from tieredkv.backends import ValkeyBackend
from tieredkv.config import KiB
from tieredkv.testing.content import content, gist

_SIZES: Final = {f"key-{number}": number * 40 * KiB for number in range(8)}
_VALUES: Final = {key: content(key, nbytes) for key, nbytes in _SIZES.items()}
_ROUNDS: Final = 60


async def corruption(url: str) -> None:
    """Put and get values while one byte of what passes is changed."""
    chance = random.Random(7)
    backend = ValkeyBackend(url, request_timeout_s=0.3, connect_timeout_s=1.0, num_workers=2)
    seen: set[GetStatus] = set()
    async with TieredStore("16MiB", [backend], negative_ttl_s=0) as store:
        for _ in range(_ROUNDS):
            # Half of them among the first bytes, where the protocol's own words are.
            after_bytes = chance.choice((chance.randrange(60), chance.randrange(900 * KiB)))
            direction = chance.choice(("to_server", "to_client"))
            _ask(f"{direction} {after_bytes} {1 << chance.randrange(8)}")
            for put in await store.put_many(_VALUES.items()):
                assert put.tiers["l1"].status is PutStatus.STORED
            await store.flush()
            inside(store).l1.clear()
            for sizes in (None, list(_SIZES.values())):
                with await store.get_many(_VALUES, sizes=sizes) as results:
                    for result in results:
                        seen.add(result.status)
                        if result.object is not None:
                            assert gist(bytes(result.object)) == gist(_VALUES[str(result.key)])
                await store.flush()
                inside(store).l1.clear()
            for tier in inside(store).tiers:
                tier.health.succeeded("another round")
    assert seen >= {GetStatus.HIT, GetStatus.UNKNOWN, GetStatus.CORRUPT}, seen


def _ask(fault: str) -> None:
    """Have the parent inject a fault, and wait until it has."""
    sys.stdout.write(f"{fault}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def started(program: str, url: str) -> subprocess.Popen[str]:
    """Start a program; what it complains of goes where the complaints of this process go."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, program, url],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    faulthandler.enable()
    anyio.run({"corruption": corruption}[sys.argv[1]], sys.argv[2])
