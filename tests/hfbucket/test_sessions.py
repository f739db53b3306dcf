"""hf_xet's sessions keep something of every transfer, so none of them serves for ever."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from tests.hfbucket.calls import opened, read, statuses, write
from tests.hfbucket.media import Buckets
from tieredkv.clients.hub_answers import FileInfo
from tieredkv.config import KiB
from tieredkv.results import GetStatus, PutStatus
from tieredkv.testing.content import content

pytestmark = [pytest.mark.anyio, pytest.mark.network]

VALUES = {f"key-{number}": content(number, (number + 1) * 10 * KiB) for number in range(12)}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sessions keep their files; nothing may be left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.iterdir())


def short_lived(monkeypatch: pytest.MonkeyPatch, *, uploads: int, downloads: int) -> None:
    monkeypatch.setattr("tieredkv.clients.xet._MOST_UPLOADS", uploads)
    monkeypatch.setattr("tieredkv.clients.xet._MOST_DOWNLOADS", downloads)


def files(scratch: Path) -> set[Path]:
    return {path for path in scratch.rglob("*") if path.is_file()}


def contents(value: bytes) -> Callable[[], memoryview]:
    return lambda: memoryview(value)


async def test_what_is_kept_of_uploads_does_not_go_on_growing(
    buckets: Buckets, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lived(monkeypatch, uploads=4, downloads=1000)
    async with opened(buckets) as backend:
        for name, value in VALUES.items():
            assert statuses(await write(backend, (name, value))) == [PutStatus.STORED]
            assert len(files(scratch)) <= 4


async def test_transfers_go_on_while_sessions_are_replaced(
    buckets: Buckets, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lived(monkeypatch, uploads=1, downloads=1)
    async with opened(buckets) as backend:

        async def there_and_back(name: str, value: bytes) -> None:
            assert statuses(await write(backend, (name, value))) == [PutStatus.STORED]
            assert (await read(backend, name, value)).status is GetStatus.HIT

        async with anyio.create_task_group() as tasks:
            for item in VALUES.items():
                tasks.start_soon(there_and_back, *item)
        assert not files(scratch)


async def test_a_session_outlives_its_last_transfer_only(
    buckets: Buckets, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(buckets) as backend:
        await write(backend, ("name", b"value"))
        assert backend._xet is not None
        assert backend._bucket is not None
        xet = backend._xet
        reading = await backend._bucket.grants.get("read")
        writing = await backend._bucket.grants.get("write")
        short_lived(monkeypatch, uploads=1, downloads=1)
        others: list[FileInfo] = []

        def outer_contents() -> memoryview:
            for value in VALUES.values():  # each in a session of its own
                (info,) = xet.upload(writing, [contents(value)])
                assert isinstance(info, FileInfo)
                others.append(info)
            return memoryview(b"outer" * 50_000)

        (outer,) = xet.upload(writing, [outer_contents])
        assert isinstance(outer, FileInfo)
        assert not files(scratch)

        landed = bytearray()

        def land(piece: bytes) -> None:
            for info, value in zip(others, VALUES.values(), strict=True):
                pieces: list[bytes] = []
                xet.download(reading, info, pieces.append)
                assert b"".join(pieces) == value
            landed.extend(piece)

        xet.download(reading, outer, land)
        assert landed == b"outer" * 50_000
