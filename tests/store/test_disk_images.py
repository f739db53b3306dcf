"""A disk that is full, turns read-only, or goes away while a store works: the next tier answers."""

from __future__ import annotations

from pathlib import Path

from tests.disk.mounts import in_own_mounts

_STORE = """
import random, shutil, subprocess, sys
from contextlib import asynccontextmanager
from pathlib import Path
import anyio
from tests.store.inside import inside
from tieredkv import GetStatus, PutStatus, TieredStore
from tieredkv.backends import DiskBackend
from tieredkv.testing.content import content

image, other = Path(sys.argv[1]) / "image", Path(sys.argv[1]) / "other"
image.mkdir()

def mount(*options):
    subprocess.run(["mount", *options], check=True)

def mount_image():
    mount("-t", "tmpfs", "-o", "size=2m", "none", str(image))

def opened():
    tiers = [DiskBackend(image), DiskBackend(other, name="other")]
    return TieredStore("4MiB", tiers, max_pending="4MiB")  # no put is too much for them

async def failure(store, key, nbytes=100_000):
    assert (await store.put(key, content(key, nbytes))).ok
    report = await store.flush()
    assert not report.pending and set(report.failed) <= {"disk"}, report
    return report.failed.get("disk", {}).get(key)

def fill():
    try:
        with (image / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
    except OSError:
        pass

async def served_by(store, key, nbytes=100_000):
    inside(store).l1.clear()
    with await store.get_many([key]) as (result,):
        assert result.status == "hit", result.error
        assert bytes(result.object) == content(key, nbytes)
        return result.tier

async def reason(store):
    return (await store.status())["tiers"]["disk"]["reason"]

mount_image()
"""


def test_a_full_disk_is_passed_by_and_used_again(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened() as store:
        assert await failure(store, "a") is None
        fill()
        full = await failure(store, "large", 300_000)  # all of ours would not be enough
        assert full.status == "failed" and "ENOSPC" in str(full.error), full
        assert await served_by(store, "large", 300_000) == "other"
        assert await served_by(store, "a") == "disk"
        assert "ENOSPC" in await reason(store)
        assert store.stats().tiers["disk"].is_asked
        (image / "filler").unlink()
        assert await failure(store, "large", 300_000) is None
        assert await served_by(store, "large", 300_000) == "disk"
        assert await reason(store) == "", await reason(store)

anyio.run(main)
"""
    in_own_mounts(_STORE + script, tmp_path)


def test_a_disk_that_turns_read_only_serves_what_it_has(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened() as store:
        await failure(store, "a")
        mount("-o", "remount,ro", str(image))
        for key in ("b", "c", "d", "e"):
            refused = await failure(store, key)
            assert refused.status == "failed" and "EROFS" in str(refused.error), refused
        assert await served_by(store, "a") == "disk"
        assert await served_by(store, "b") == "other"
        deleted = await store.delete("a")
        assert deleted.tiers["disk"].status == "failed", deleted
        inside(store).l1.clear()
        assert await store.get_bytes("a") is None, "deleted in the store's eyes"
        mount("-o", "remount,rw", str(image))
        assert await failure(store, "b") is None
        assert await served_by(store, "b") == "disk"
        assert await reason(store) == "", await reason(store)

anyio.run(main)
"""
    in_own_mounts(_STORE + script, tmp_path)


def test_a_disk_that_goes_away_is_passed_by_and_used_when_it_is_back(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened() as store:
        await failure(store, "a")
        await failure(store, "b")
        subprocess.run(["umount", "-l", str(image)], check=True)
        image.rmdir()
        image.write_text("in its place")
        assert await served_by(store, "a") == "other"
        for _ in range(5):
            lost = await failure(store, "c")
            assert lost.status == "failed", lost
        assert "image" in await reason(store)
        image.unlink()
        image.mkdir()
        mount_image()
        assert await failure(store, "c") is None
        assert await served_by(store, "c") == "disk"
        assert await served_by(store, "a") == "other"  # and so it is back-filled
        await store.flush()
        assert await served_by(store, "a") == "disk"
        assert await reason(store) == "", await reason(store)

anyio.run(main)
"""
    in_own_mounts(_STORE + script, tmp_path)


def test_whatever_happens_to_a_disk_under_load_no_byte_is_wrong(tmp_path: Path) -> None:
    script = """
KEYS = [f"key-{number}" for number in range(18)]

async def use(store, seed):
    chance = random.Random(seed)
    while True:
        some = chance.sample(KEYS[seed::3], 4)  # nobody else puts these
        for result in await store.put_many([(key, content(key, 50_000)) for key in some]):
            assert result.ok, result
        inside(store).l1.clear()
        with await store.get_many(some) as results:
            for result in results:
                assert result.status == "hit", (result, result.error)
                assert bytes(result.object) == content(str(result.key), 50_000)
        rounds.append(seed)

async def some_rounds():
    until = len(rounds) + 6
    while len(rounds) < until:
        await anyio.sleep(0.001)

rounds = []

async def main():
    async with opened() as store, anyio.create_task_group() as tasks:
        for seed in range(3):
            tasks.start_soon(use, store, seed)
        for _ in range(3):
            await some_rounds()
            fill()
            await some_rounds()
            (image / "filler").unlink()
            while subprocess.run(["mount", "-o", "remount,ro", str(image)]).returncode:
                await anyio.sleep(0.001)  # as long as a file is being written
            await some_rounds()
            mount("-o", "remount,rw", str(image))
            await some_rounds()
            shutil.rmtree(image, ignore_errors=True)
            await some_rounds()
            subprocess.run(["umount", "-l", str(image)], check=True)
            await some_rounds()
            mount_image()
        tasks.cancel_scope.cancel()

anyio.run(main)
"""
    in_own_mounts(_STORE + script, tmp_path)
