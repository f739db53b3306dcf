"""hf_xet, tamed: contents by their hash, in and out, with a session of our own.

What it says in exceptions of five kinds, or not at all (a stream of a failed download may just end)
is one kind here. Nothing of the process is touched but, where the home directory cannot be written,
the one variable without which hf_xet does not upload.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from tieredkv.clients.hub_answers import FileInfo, Grant
from tieredkv.clients.scratch import Scratch
from tieredkv.config import MiB
from tieredkv.errors import MissingDependencyError, without_frames

__all__ = ["Compression", "XetClient", "XetError", "XetSettings"]

Compression: TypeAlias = Literal["auto", "none", "lz4"]

PIECE_BYTES: Final = 1 * MiB
"""Uploads are handed over in pieces: hf_xet takes only `bytes`, and copies with the GIL held."""

_INSTALL: Final = "pip install 'hf-xet>=1.7,<2'"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_QUERY: Final = re.compile(r"\?\S*")  # of an address that is signed: it opens the door by itself
_REFUSAL: Final = re.compile(r"\b40[13] (?:Unauthorized|Forbidden)", re.IGNORECASE)
_LONG_S: Final = 10 * 366 * 86_400.0
_CACHE_VARIABLE: Final = "HF_XET_CACHE"

# A session keeps a file and 1.6 KB of memory for each upload, which make every later upload 2 us
# slower, and 0.3 KB for each download. A new one takes 25 ms, most of it for new connections.
_MOST_UPLOADS: Final = 1000
_MOST_DOWNLOADS: Final = 10_000


class XetError(Exception):
    """A content could not be moved.

    Attributes:
        is_refusal: The grant was not honoured; another one may be.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.is_refusal: bool = _REFUSAL.search(reason) is not None


@attrs.frozen(kw_only=True)
class XetSettings:
    """How to move contents.

    Attributes:
        compression: ``"none"`` suits values that look like noise.
        streams: Downloads at a time.
        read_timeout_s: Longest silence of a server.
        connect_timeout_s: Longest time to connect.
        user_agent: What we are.
    """

    compression: Compression
    streams: int
    read_timeout_s: float
    connect_timeout_s: float
    user_agent: str

    def options(self, directory: Path) -> dict[str, object]:
        """Return hf_xet's options for a session with its files in a directory."""
        return {
            "telemetry.enabled": False,
            "deduplication.global_dedup_query_enabled": False,
            "client.retry_max_attempts": 1,
            "client.retry_base_delay": "200ms",
            "client.read_timeout": f"{self.read_timeout_s * 1000:.0f}ms",
            "client.connect_timeout": f"{self.connect_timeout_s * 1000:.0f}ms",
            "client.ac_initial_download_concurrency": max(4, min(64, self.streams)),
            "client.ac_initial_upload_concurrency": 8,
            "client.max_idle_connections": self.streams,
            "reconstruction.download_buffer_size": "256mb",
            "xorb.compression_policy": self.compression,
            # Absolute paths take the place of what is below the user's cache.
            "shard.cache_subdir": str(directory / "shards"),
            "shard.cache_size_limit": 64 * MiB,
            "data.staging_subdir": str(directory / "staging"),
            "session.dir_name": str(directory / "session"),
        }


@attrs.define(eq=False)
class _Session:
    """One of hf_xet's, and its use.

    Attributes:
        vendors: hf_xet's own.
        directory: Where it keeps its files.
        users: Transfers under way.
        uploads: So many have begun.
        downloads: So many have begun.
        group: What all downloads with a grant share.
        grant: The group's.
    """

    vendors: Any
    directory: Path
    users: int = 0
    uploads: int = 0
    downloads: int = 0
    group: Any = None
    grant: Grant | None = None

    @property
    def is_worn(self) -> bool:
        """Whether it keeps so much of what it has done that the next transfer needs a new one."""
        return self.uploads >= _MOST_UPLOADS or self.downloads >= _MOST_DOWNLOADS


class XetClient:
    """A session of hf_xet, shared by worker threads. Every method blocks; any thread may call.

    hf_xet keeps something of every transfer as long as the session is there. So one that has served
    its time is replaced, and goes with the last transfer that began in it.

    A forked child gets a session of its own and leaves the one of its parent alone.
    """

    def __init__(self, settings: XetSettings) -> None:
        """Import hf_xet and make a session.

        Raises:
            MissingDependencyError: It is absent, or holds the GIL while it waits (before 1.7).
        """
        try:
            self._vendor: Any = import_module("hf_xet")
        except ImportError as error:
            raise MissingDependencyError(
                f"Hugging Face Buckets need hf_xet ({error}): {_INSTALL}"
            ) from None
        if not hasattr(getattr(self._vendor, "XetDownloadStreamGroup", None), "finish"):
            raise MissingDependencyError(f"hf_xet is too old: {_INSTALL}")
        self._settings = settings
        self._lock = threading.Lock()
        self._orphans: list[object] = []  # of the parent process: to drop them may hang
        self._scratch: Scratch | None = None
        self._session: _Session | None = None
        self._numbers = itertools.count()
        self._pid = 0
        with self._lock:
            self._renew()

    def close(self) -> None:
        """Forget the session; what still runs ends by itself, and the last of it frees it."""
        with self._lock:
            if self._pid != os.getpid():
                self._orphan()
            self._session = None
            scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.remove()

    def download(self, grant: Grant, info: FileInfo, land: Callable[[bytes], None]) -> None:
        """Bring a content; `land` takes its pieces in order, each valid as long as it is kept.

        Args:
            grant: For reading.
            info: What to bring. Nothing is asked of the server for an empty content.
            land: What it raises passes through.

        Raises:
            XetError: It is not all there, or too much. Some pieces may have landed.
        """
        _require_hash(info.hash)
        if not info.size:
            return
        landed = 0
        with self._lent() as session:
            session.downloads += 1
            for piece in self._pieces(session, grant, info):
                landed += len(piece)
                if landed > info.size:
                    raise XetError(f"more than the {info.size} bytes that were announced")
                land(piece)
        if landed != info.size:  # also the only sign of many a failure within hf_xet
            raise XetError(f"the transfer ended after {landed} of {info.size} bytes")

    def upload(
        self, grant: Grant, contents: Sequence[Callable[[], memoryview]]
    ) -> list[FileInfo | BaseException]:
        """Send contents, so that files can be made of them.

        Args:
            grant: For writing.
            contents: Each is called once, right before its bytes are copied. One that raises is
                left out, and what it raised is returned in its place, without its traceback.

        Raises:
            XetError: Nothing of it can be relied on to have arrived.
        """
        with self._lent() as session:
            session.uploads += 1
            return self._sent(session, grant, contents)

    def _sent(
        self, session: _Session, grant: Grant, contents: Sequence[Callable[[], memoryview]]
    ) -> list[FileInfo | BaseException]:
        results: list[FileInfo | BaseException] = []
        commit: Any = None
        try:
            commit = self._opened(session.vendors.new_upload_commit, grant)
            for content in contents:
                try:
                    view = content()
                except BaseException as error:  # noqa: BLE001 - handed to the caller
                    results.append(without_frames(error))
                    continue
                stream = commit.start_upload_stream(sha256=self._vendor.SKIP_SHA256)
                for at in range(0, view.nbytes, PIECE_BYTES):
                    stream.write(bytes(view[at : at + PIECE_BYTES]))
                size = view.nbytes
                del view
                results.append(FileInfo(str(stream.finish().xet_info.hash), size))
            commit.wait_to_finish()
        except (OSError, RuntimeError, ValueError) as error:
            if commit is not None:
                _abort(commit)
            raise XetError(_shown(error)) from None
        return results

    def _pieces(self, session: _Session, grant: Grant, info: FileInfo) -> Iterator[bytes]:
        group = self._group(session, grant)
        try:
            yield from group.download_stream(self._vendor.XetFileInfo(info.hash, info.size))
        except (OSError, RuntimeError, ValueError) as error:
            # A group may be spoilt by what it could not begin ("Previous task error").
            with self._lock:
                if session.group is group and not isinstance(error, OSError):
                    session.group = None
            raise XetError(_shown(error)) from None

    def _group(self, session: _Session, grant: Grant) -> Any:
        """Return the group that all downloads of a session with a grant share."""
        with self._lock:
            if session.group is not None and session.grant is grant:
                return session.group
        try:
            group = self._opened(session.vendors.new_download_stream_group, grant)
        except (OSError, RuntimeError, ValueError) as error:
            raise XetError(_shown(error)) from None
        with self._lock:
            session.group, session.grant = group, grant
        return group

    def _opened(self, open_: Callable[..., Any], grant: Grant) -> Any:
        return open_(
            endpoint=grant.cas_url,
            token=grant.token,
            # It shall not renew the token by itself, without a typed error and beside others.
            token_expiry_unix_secs=int(grant.expires_s + _LONG_S),
            custom_headers={"user-agent": self._settings.user_agent},
        )

    # -- sessions --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lent(self) -> Iterator[_Session]:
        """Lend the session for one transfer.

        Raises:
            XetError: It was closed, or there can be none.
        """
        with self._lock:
            if self._pid != os.getpid():
                self._orphan()
                try:
                    self._renew()
                except (OSError, RuntimeError, ValueError) as error:
                    raise XetError(_shown(error)) from None
            session = self._session
            if session is None:
                raise XetError("the session was closed")
            session.users += 1
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                if session is self._session and session.is_worn:
                    with contextlib.suppress(OSError, RuntimeError, ValueError):
                        self._session = self._new_session(session.directory.parent)
                is_over = session is not self._session and not session.users
            if is_over:
                shutil.rmtree(session.directory, ignore_errors=True)

    def _orphan(self) -> None:
        self._orphans += [self._session, self._scratch]
        self._session = self._scratch = None

    def _renew(self) -> None:
        self._scratch = Scratch()
        _give_a_cache(self._scratch.path)
        self._session = self._new_session(self._scratch.path)
        self._pid = os.getpid()

    def _new_session(self, scratch: Path) -> _Session:
        directory = scratch / str(next(self._numbers))
        options = self._settings.options(directory)
        vendors = self._vendor.XetSession(self._vendor.XetConfig().with_config(options))
        return _Session(vendors, directory)


def _give_a_cache(scratch: Path) -> None:
    """Name a directory for hf_xet if the user's cannot be made: without one it does not upload.

    It makes the directory even if everything in it is configured to be elsewhere.
    """
    environ = os.environ
    cache = environ.get(_CACHE_VARIABLE)
    home = environ.get("HF_HOME")
    xdg = environ.get("XDG_CACHE_HOME")
    try:
        if not cache:
            parent = Path(home) if home else Path(xdg or Path.home() / ".cache") / "huggingface"
            cache = str(parent / "xet")
        Path(cache).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where the home is
        environ[_CACHE_VARIABLE] = str(scratch / "cache")


def _require_hash(text: str) -> None:
    if _HASH.fullmatch(text) is None:  # it would spoil the group for everybody
        raise XetError(f"{text[:80]!r} is not a hash of Xet")


def _abort(commit: Any) -> None:
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended already
        commit.abort()


def _shown(error: BaseException) -> str:
    text = " ".join(_QUERY.sub("?…", str(error)).split())
    return f"{type(error).__name__}: {text[:300]}"
