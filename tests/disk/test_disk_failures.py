"""A disk that fails: what is said, what is left behind, and that it comes back by itself."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.calls import get, names, opened, put, size
from tests.disk.calls import survey
from tests.disk.layout import files_under
from tests.disk.mounts import in_own_mounts
from tieredkv.backends import DiskBackend
from tieredkv.config import KiB, MiB
from tieredkv.errors import TierError, TierFullError
from tieredkv.results import DeleteStatus, GetStatus, PutStatus
from tieredkv.testing.backends.requests import Landing, Source

pytestmark = pytest.mark.anyio


@contextmanager
def failing_writes(monkeypatch: pytest.MonkeyPatch, code: int, after_bytes: int) -> Iterator[None]:
    """Let writes to files of the process fail when they have written some bytes."""
    write = os.write

    def some_bytes(descriptor: int, value: bytes | memoryview) -> int:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return write(descriptor, value)  # an event loop's own
        if os.fstat(descriptor).st_size < after_bytes:
            return write(descriptor, value[:after_bytes])
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", some_bytes)
        yield


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_write_that_breaks_off_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async with opened(DiskBackend(tmp_path, capacity=1 * MiB)) as backend:
        with failing_writes(monkeypatch, code, after_bytes=50_000):
            broken = await put(backend, "new", bytes(100_000))
        assert broken.status is PutStatus.FAILED
        assert isinstance(broken.error, TierFullError if code != errno.EIO else TierError)
        assert f"errno {code}" in str(broken.error)
        assert errno.errorcode[code] in str(broken.error)
        assert await size(backend, "new") is None
        assert await get(backend, "new", 100_000) is None
        assert files_under(tmp_path) == []
        assert not (await backend.status()).is_healthy
        assert errno.errorcode[code] in (await backend.status()).reason
        assert (await put(backend, "new", bytes(100_000))).status is PutStatus.STORED
        assert (await backend.status()).is_healthy


async def test_a_broken_overwrite_leaves_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:
        await put(backend, "name", b"old")
        with failing_writes(monkeypatch, errno.EIO, after_bytes=10):
            broken, whole = await backend.write_many(
                [Source("name", bytes(50)).request(), Source("other", b"value").request()]
            )
        assert (broken.status, whole.status) == (PutStatus.FAILED, PutStatus.STORED)
        assert await get(backend, "name", 3) == b"old"


async def test_a_name_that_may_not_survive_a_crash_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(DiskBackend(tmp_path, durability="fsync")) as backend:
        await put(backend, "name", b"old")
        sync = os.fsync

        def fail_for_directories(descriptor: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - as it stands there
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail_for_directories)
            assert (await put(backend, "name", b"new")).status is PutStatus.FAILED
        assert await get(backend, "name", 3) is None


async def test_without_descriptors_the_answer_is_not_a_miss(tmp_path: Path) -> None:
    async with opened(DiskBackend(tmp_path)) as backend:
        await put(backend, "name", b"value")
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            (read,) = await backend.read_many([Landing("name", 5).request()])
            written = await put(backend, "other", b"value")
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert read.status is GetStatus.UNKNOWN
        assert "EMFILE" in str(read.error)
        assert "ulimit -n" in str(read.error)
        assert written.status is PutStatus.FAILED
        assert await get(backend, "name", 5) == b"value"
        assert (await put(backend, "other", b"value")).status is PutStatus.STORED
        assert (await backend.status()).is_healthy


async def test_a_directory_that_vanished_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with opened(DiskBackend(root, capacity=8 * KiB)) as backend:
        await put(backend, "old", b"value")
        shutil.rmtree(root)
        assert await get(backend, "old", 5) is None
        assert (await put(backend, "new", b"value")).status is PutStatus.STORED
        assert await get(backend, "new", 5) == b"value"
        await survey(backend)
        for number in range(5):
            await put(backend, f"{number}", bytes(4 * KiB))
        assert len(await names(backend)) == 2, "its capacity holds as before"


async def test_a_directory_that_cannot_be_made_again_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with opened(DiskBackend(root)) as backend:
        shutil.rmtree(root)
        root.write_text("in its place")
        outcome = await put(backend, "name", b"value")
        assert outcome.status is PutStatus.FAILED
        assert str(root) in str(outcome.error)
        assert "a file is where a directory should be" in str(outcome.error)


async def test_a_survey_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with opened(DiskBackend(root, capacity=8 * KiB)) as backend:
        shutil.rmtree(root)
        await survey(backend)
        status = await backend.status()
        assert not status.is_healthy
        assert "vanished" in status.reason
        await put(backend, "name", b"value")
        await survey(backend)
        assert (await backend.status()).is_healthy


@pytest.mark.parametrize("kind", ["a file", "below a file"])
async def test_an_unfit_path_is_told_when_it_opens(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    root = tmp_path / "file" if kind == "a file" else tmp_path / "file" / "root"
    with pytest.raises(TierError, match=r"disk: open: .*errno \d+.*file"):
        await DiskBackend(root).open()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EROFS])
async def test_a_file_system_that_takes_no_values_is_told_when_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    backend = DiskBackend(tmp_path)
    with (
        failing_writes(monkeypatch, code, after_bytes=0),
        pytest.raises(TierError, match=rf"disk: open: .*{errno.errorcode[code]}, errno {code}"),
    ):
        await backend.open()
    assert files_under(tmp_path) == []
    async with opened(backend):
        assert (await put(backend, "name", b"value")).status is PutStatus.STORED


async def test_locks_that_are_missing_are_told_when_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", refuse)
        with pytest.raises(TierError, match=r"ENOLCK.*flock"):
            await DiskBackend(tmp_path).open()


SMALL_DISK = """
import subprocess, sys, anyio
from pathlib import Path
from tests.calls import get, names, opened, put
from tests.disk.layout import files_under
from tieredkv.backends import DiskBackend
from tieredkv.errors import TierFullError
root = Path(sys.argv[1])

def mount(*options):
    subprocess.run(["mount", *options], check=True)

mount("-t", "tmpfs", "-o", "size=1m", "none", str(root))
"""


def test_a_full_disk_makes_room_for_new_values(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened(DiskBackend(root)) as backend:
        for number in range(20):
            outcome = await put(backend, f"{number:02d}", bytes([number]) * 200_000)
            assert str(outcome.status) == "stored", outcome
        left = await names(backend)
        assert left in (["16", "17", "18", "19"], ["15", "16", "17", "18", "19"]), left
        for number in map(int, left):
            assert await get(backend, f"{number:02d}", 200_000) == bytes([number]) * 200_000
        assert (await backend.status()).is_healthy

anyio.run(main)
"""
    in_own_mounts(SMALL_DISK + script, tmp_path)


def test_a_value_larger_than_the_disk_is_reported(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened(DiskBackend(root)) as backend:
        await put(backend, "small", b"value")
        outcome = await put(backend, "large", bytes(2_000_000))
        assert str(outcome.status) == "failed", outcome
        assert isinstance(outcome.error, TierFullError), outcome
        assert "ENOSPC" in str(outcome.error) and "free space" in str(outcome.error), outcome
        assert await get(backend, "large", 2_000_000) is None
        assert await get(backend, "small", 5) == b"value"
        assert not [path for path in files_under(root) if path.stat().st_size > 5]
        assert not (await backend.status()).is_healthy

anyio.run(main)
"""
    in_own_mounts(SMALL_DISK + script, tmp_path)


def test_a_directory_on_a_full_disk_opens(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened(DiskBackend(root)) as backend:
        for number in range(8):
            await put(backend, f"{number}", bytes([number]) * 100_000)
    filler = (root / "filler").open("wb", buffering=0)
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError:
        pass
    async with opened(DiskBackend(root)) as backend:
        assert await get(backend, "7", 100_000) == bytes([7]) * 100_000
        assert str((await put(backend, "new", bytes(100_000))).status) == "stored"

anyio.run(main)
"""
    in_own_mounts(SMALL_DISK + script, tmp_path)


def test_a_disk_that_turns_read_only_is_still_read(tmp_path: Path) -> None:
    script = """
async def main():
    async with opened(DiskBackend(root)) as backend:
        await put(backend, "name", b"value")
        mount("-o", "remount,ro", str(root))
        assert await get(backend, "name", 5) == b"value"
        outcome = await put(backend, "other", b"value")
        assert str(outcome.status) == "failed", outcome
        assert "EROFS" in str(outcome.error) and "mount it writable" in str(outcome.error), outcome
        assert "EROFS" in (await backend.status()).reason
        mount("-o", "remount,rw", str(root))
        assert str((await put(backend, "other", b"value")).status) == "stored"
        assert (await backend.status()).is_healthy
    mount("-o", "remount,ro", str(root))
    try:
        await DiskBackend(root).open()
    except Exception as error:
        assert "EROFS" in str(error), error
    else:
        raise AssertionError("it opened")

anyio.run(main)
"""
    in_own_mounts(SMALL_DISK + script, tmp_path)


async def test_after_trouble_an_answer_that_nothing_is_there_is_one(tmp_path: Path) -> None:
    root, aside = tmp_path / "root", tmp_path / "aside"
    async with opened(DiskBackend(root)) as backend:
        root.rename(aside)
        root.write_text("in its place")
        assert (await backend.stat_many(["name"]))[0].status is GetStatus.UNKNOWN
        assert (await backend.delete_many(["name"]))[0].status is DeleteStatus.FAILED
        assert not (await backend.status()).is_healthy
        root.unlink()
        aside.rename(root)
        assert (await backend.stat_many(["name"]))[0].status is GetStatus.MISS
        assert (await backend.delete_many(["name"]))[0].status is DeleteStatus.ABSENT
        assert (await backend.status()).is_healthy


async def test_a_failure_leaves_the_callers_own_error_as_it_is(tmp_path: Path) -> None:
    """One who asks while it handles an error, and raises that again, still shows where it was."""
    backend = DiskBackend(tmp_path)
    await backend.open()
    (tmp_path / "objects").rmdir()
    (tmp_path / "objects").touch()

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError) as raised:  # noqa: PT011, PT012 - where it was raised counts
        try:
            fail()
        except ValueError:
            with pytest.raises(TierError, match="ENOTDIR"):
                _ = [stored async for stored in backend.list_names()]
            raise
    assert raised.traceback[-1].name == "fail"
    await backend.aclose()
