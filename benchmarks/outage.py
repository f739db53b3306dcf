"""What a tier that hangs for good costs the keys that others serve, once its breaker is open.

Two stores read the same values from disk. One of them has to ask a Valkey server first, which is
stopped (SIGSTOP): it never answers, and never refuses either. Probes go on in the background.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Final

import anyio

from benchmarks.runner import Figure, Options, Paired, Report, Subject, paired, quartiles
from tieredkv import L1Config, TieredStore
from tieredkv.backends import DiskBackend, ValkeyBackend
from tieredkv.config import KiB
from tieredkv.testing.valkey import ValkeyServer

_VALUES: Final = 128
_NBYTES: Final = 256 * KiB
_BLOCKS: Final = 15
_WITHOUT: Final = "disk alone"
_WITH: Final = "disk below a tier that hangs"


def run(options: Options) -> Iterator[Report]:
    """Measure gets of one value."""
    with tempfile.TemporaryDirectory() as root:
        yield anyio.run(hung_tier, options, Path(root))


async def hung_tier(options: Options, root: Path) -> Report:
    """Compare the 99th percentiles of blocks of gets, the two stores in turns."""
    names = [f"chunk-{number:06d}" for number in range(_VALUES)]
    # L1 keeps a quarter, and is asked in turn: every get goes to disk.
    l1 = L1Config(capacity=_VALUES // 4 * (_NBYTES + 4 * KiB), overflow=0)
    with ValkeyServer() as server:
        valkey = ValkeyBackend(server.url, request_timeout_s=0.5, connect_timeout_s=0.5)
        async with (
            TieredStore(l1, [DiskBackend(root)]) as without,
            TieredStore(l1, [valkey, DiskBackend(root, name="disk")]) as hung,
        ):
            for name in names:
                (await without.put(name, random.Random(name).randbytes(_NBYTES))).raise_for_status()
            server.pause()
            try:
                while (await hung.status())["tiers"]["valkey"]["is_asked"]:
                    await hung.get(names[0], size=_NBYTES)
                    await hung.clear()
                subjects = [
                    Subject(_WITHOUT, _gets(without, names), _NBYTES),
                    Subject(_WITH, _gets(hung, names), _NBYTES),
                ]
                rounds = options.rounds_or(400)
                blocks = [await paired(subjects, rounds=rounds, warmup=_VALUES)]
                blocks += [
                    await paired(subjects, rounds=rounds, warmup=0)
                    for _ in range(0 if options.quick else _BLOCKS - 1)
                ]
                probes = (await hung.status())["tiers"]["valkey"]["probes"]
            finally:
                server.resume()
    return Report(
        f"Gets of {_NBYTES // KiB} KiB from disk while a tier above it hangs",
        blocks[0].rows(),
        [
            _p99_ratio(blocks),
            Figure("probes meanwhile", probes, ""),
        ],
    )


def _gets(store: TieredStore, names: Sequence[str]) -> Callable[[], Awaitable[int]]:
    turns = cycle(names)

    async def run() -> int:
        lease = await store.get(next(turns))
        assert lease is not None
        assert lease.tier == "disk"
        lease.release()
        return 1

    return run


def _p99_ratio(blocks: Sequence[Paired]) -> Figure:
    ratios = []
    for block in blocks:
        p99 = {row.name: row.p99_s for row in block.rows()}
        ratios.append(p99[_WITH] / p99[_WITHOUT])
    name = f"p99 of {_WITH} : {_WITHOUT}"
    return Figure(name, median(ratios), spread=quartiles(ratios), at_most=1.5)
