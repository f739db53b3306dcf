"""What a backend means for the process around it: its home, its output, its children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hfbucket.media import Buckets

pytestmark = pytest.mark.network

_ROUND_TRIP = """
import anyio, os, sys
from tieredkv.backends import HFBucketBackend
from tieredkv.testing.backends.requests import Landing, Source

async def round_trip(name):
    backend = HFBucketBackend(sys.argv[1], endpoint=sys.argv[2], token=sys.argv[3])
    await backend.open()
    (written,) = await backend.write_many([Source(name, name.encode() * 20000).request()])
    landing = Landing(name, 20000 * len(name))
    (read,) = await backend.read_many([landing.request()])
    await backend.aclose()
    assert (written.status, read.status) == ("stored", "hit"), (written, read)
    assert landing.value == name.encode() * 20000
"""


def _run(buckets: Buckets, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HF_") and name not in ("HOME", "RUST_LOG", "XDG_CACHE_HOME")
    }
    return subprocess.run(
        [
            *(sys.executable, "-W", "error", "-c", _ROUND_TRIP + code),
            *(f"hf://buckets/{buckets.id}/prod", buckets.server.endpoint, buckets.server.token),
        ],
        env={**kept, **environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_home_that_cannot_be_written_does_not_matter(buckets: Buckets, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory can be made below a file, by root either")
    ended = _run(buckets, 'anyio.run(round_trip, "name")', HOME=str(blocked), TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_user_without_a_home_does_not_matter(buckets: Buckets, tmp_path: Path) -> None:
    code = """
import pwd

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown
anyio.run(round_trip, "name")
"""
    ended = _run(buckets, code, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.iterdir()) == []


_SCRATCH = """
import os, signal, sys
from tieredkv.clients.scratch import Scratch

scratch = Scratch()
(scratch.path / "file").touch()
print(scratch.path, flush=True)
sys.stdin.readline()
if "fork" in sys.argv:
    pid = os.fork()
    if not pid:
        sys.exit()
    os.waitpid(pid, 0)
    assert scratch.path.exists()
"""


def _scratch(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _SCRATCH, *arguments],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _path_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_what_a_killed_process_leaves_is_swept_by_the_next_one(tmp_path: Path) -> None:
    with _scratch(tmp_path) as living, _scratch(tmp_path) as killed:
        theirs, left = _path_of(living), _path_of(killed)
        killed.kill()
        killed.wait()
        assert (left / "file").exists()
        with _scratch(tmp_path) as other:
            assert _path_of(other).exists()
            assert not left.exists()
            assert (theirs / "file").exists()
            other.communicate("end\n")
        living.communicate("end\n")
    assert (living.returncode, other.returncode) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_that_ends_leaves_it_to_its_parent(tmp_path: Path) -> None:
    with _scratch(tmp_path, "fork") as process:
        path = _path_of(process)
        process.communicate("end\n")
    assert process.returncode == 0
    assert not path.exists()


def test_memory_does_not_grow_with_what_is_written(buckets: Buckets, tmp_path: Path) -> None:
    code = """
import re
from pathlib import Path

def peak_bytes():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

async def write(count):
    values = [os.urandom(8 << 20)]
    backend = HFBucketBackend(
        sys.argv[1], endpoint=sys.argv[2], token=sys.argv[3], num_workers=1, compression="none"
    )
    await backend.open()
    for number in range(count):
        name = f"{number}"
        value = name.encode() + values[0][len(name):]
        (written,) = await backend.write_many([Source(name, value).request()])
        assert written.status == "stored", written
    await backend.aclose()

anyio.run(write, 8)
before = peak_bytes()
anyio.run(write, 24)
print((peak_bytes() - before) >> 20)
"""
    ended = _run(buckets, code, HOME=str(tmp_path), RUST_LOG="off")
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 64


def test_nothing_is_printed_and_the_environment_stays(buckets: Buckets, tmp_path: Path) -> None:
    code = 'before = dict(os.environ)\nanyio.run(round_trip, "name")\nassert before == os.environ'
    ended = _run(buckets, code, HOME=str(tmp_path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_forked_child_has_a_client_of_its_own(buckets: Buckets, tmp_path: Path) -> None:
    code = """
def child():
    pid = os.fork()
    if not pid:
        try:
            anyio.run(round_trip, "child")
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def parent():
    backend = HFBucketBackend(sys.argv[1], endpoint=sys.argv[2], token=sys.argv[3])
    await backend.open()
    await backend.write_many([Source("parent", b"value").request()])
    kept.append(backend)

kept = []
anyio.run(round_trip, "before")
assert child() == 0
anyio.run(round_trip, "after")
"""
    ended = _run(buckets, code, HOME=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert buckets.get("child") == b"child" * 20000


def test_the_client_of_a_parent_is_left_alone(buckets: Buckets, tmp_path: Path) -> None:
    """Whatever a child does with what it inherits: it must neither hang nor harm the parent."""
    code = """
from tieredkv.clients.hub_answers import FileInfo, Grant
from tieredkv.clients.xet import XetClient, XetSettings

xet = XetClient(XetSettings(compression="auto", streams=2, read_timeout_s=5, connect_timeout_s=5,
                            user_agent="test/1"))
scratch = xet._scratch.path
pid = os.fork()
if not pid:
    try:
        try:
            xet.upload(Grant("http://127.0.0.1:9", "token", 0.0), [lambda: memoryview(b"value")])
        except Exception as error:
            assert type(error).__name__ == "XetError", error
        assert xet._scratch.path != scratch
        xet.close()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert scratch.is_dir()
xet.close()
assert not scratch.exists()
"""
    ended = _run(buckets, code, HOME=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
