"""`HFBucketBackend`: values as files of a Hugging Face Bucket."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, get_args

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from tieredkv.backends._workers import Workers
from tieredkv.backends.base import (
    Backend,
    BackendStatus,
    Capabilities,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.backends.hfbucket.bucket import Bucket, BucketAccess, Troubles
from tieredkv.backends.hfbucket.grants import Grants
from tieredkv.backends.hfbucket.handle import Handle, checked_endpoint, find_token
from tieredkv.backends.hfbucket.ledger import Ledger
from tieredkv.backends.hfbucket.lookups import Lookups
from tieredkv.backends.hfbucket.metadata import MetadataCache
from tieredkv.backends.hfbucket.reads import Reader
from tieredkv.backends.hfbucket.writes import Writer
from tieredkv.clients.hub import HubClient, load_hub
from tieredkv.clients.hub_answers import Listing
from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.clients.xet import Compression, XetClient, XetSettings
from tieredkv.config import (
    Promotion,
    Size,
    WriteOn,
    boolean,
    choice,
    number,
    parse_size,
    seconds,
    whole,
)
from tieredkv.errors import ConfigError, StoreClosedError, TierUnavailableError
from tieredkv.results import DeleteOutcome, PutStatus, ReadOutcome, StatOutcome, WriteOutcome
from tieredkv.tasks import Detached, require_loop
from tieredkv.version import __version__

__all__ = ["HFBucketBackend"]

_log: Final = logging.getLogger(__name__)

_USER_AGENT: Final = f"tieredkv/{__version__}"
_PATIENCE_S: Final = 20.0


class HFBucketBackend(Backend):
    """Values as files of a Hugging Face Bucket, one for each name, directly below a prefix.

    Any number of processes may share a prefix; a value appears and is replaced as a whole. What is
    known of a file is believed for `metadata_ttl_s`: for so long, another process's change or
    removal of a value may go unnoticed. A value that was replaced is then still read whole.

    Contents move in worker threads, straight between hf_xet and the memory of a request; requests
    to the Hub run on the event loop, at most one for a batch of up to 1000 values, besides those
    for access to the contents, every quarter of an hour or so. Each has a timeout, and all share a
    budget of retries and the pauses that the Hub asks for.

    A write without an answer is looked for: if the file is there, with the content's hash, it is
    STORED, else UNKNOWN. A refusal for want of rights or space makes the tier read-only for a
    minute: writes are REJECTED("read_only") unsent, reads go on.

    Memory in flight is bounded: a value and what hf_xet holds of it for each of `transfer_workers`,
    48 MiB (or one value) for each of `num_workers`. hf_xet keeps nothing of it on disk for longer
    than the backend is open, but a log below its cache, which only ``RUST_LOG=off`` prevents.

    Of the host's process nothing is changed, with one exception: if the directory where hf_xet
    keeps its cache cannot be written (a home that is read-only), ``HF_XET_CACHE`` is set to a
    temporary one when the backend opens, as hf_xet would not upload without.
    """

    deadline_s: float = 30.0

    def __init__(
        self,
        handle: str,
        *,
        token: str | Literal[False] | None = None,
        token_env: str = "HF_TOKEN",  # noqa: S107 - the name of a variable
        endpoint: str | None = None,
        create_bucket: bool = False,
        private: bool = True,
        metadata_ttl_s: float = 30.0,
        num_workers: int = 4,
        transfer_workers: int = 16,
        capacity: Size | None = None,
        compression: Compression = "auto",
        request_timeout_s: float = 10.0,
        connect_timeout_s: float = 5.0,
        write_on: WriteOn = "put",
        promotion: Promotion = "always",
        name: str = "hfbucket",
    ) -> None:
        """Set up; nothing is asked or imported before `open`.

        Args:
            handle: ``hf://buckets/NAMESPACE/BUCKET[/PREFIX]``.
            token: Access token, if the variable has none; False: anonymous, whatever it has. A
                login that huggingface_hub has saved is never used.
            token_env: Name of the environment variable with the access token.
            endpoint: Address of the Hub; None for huggingface_hub's default.
            create_bucket: Create the bucket at the first write, if there is none.
            private: How to create it; a public bucket is readable by everybody.
            metadata_ttl_s: How long to believe what is known of a file; 0: ask each time. That
                there is none is believed for two seconds at most.
            num_workers: Threads that send contents at a time.
            transfer_workers: Threads that fetch contents at a time; each has one value under way.
            capacity: Bytes (or a size string) of the values of this process; above it, those least
                recently used are deleted. None for no limit.
            compression: ``"auto"`` lets hf_xet try; ``"none"`` is faster for values like noise.
            request_timeout_s: Longest silence of a server within a request or transfer.
            connect_timeout_s: Longest time to connect.
            write_on: When a store writes a value to it; see `Backend`.
            promotion: When what it answers with enters the tiers above; see `Backend`.
            name: How the tier is called.

        Raises:
            ConfigError: A setting is out of range.
        """
        self._set_up(name, write_on, promotion)
        if not (token is None or token is False or isinstance(token, str)):
            raise ConfigError("token must be a text, None, or False for anonymous")
        if not isinstance(token_env, str) or not token_env:
            raise ConfigError(f"token_env={token_env!r} must be the name of a variable")
        whole(num_workers, field="num_workers", low=1)
        whole(transfer_workers, field="transfer_workers", low=1)
        choice(compression, field="compression", choices=get_args(Compression))
        limit = None if capacity is None else parse_size(capacity, field="capacity")
        if limit is not None:
            whole(limit, field="capacity", low=1)
        self.handle: Handle = Handle.parse(handle)
        self.capacity_bytes: int | None = limit
        self.capabilities: Capabilities = Capabilities(
            persistent=True,
            shared=True,
            listable=True,
            scatter=True,
            native_ttl=False,
            max_value_bytes=limit,
        )
        self.has_own_space: bool = bool(self.handle.prefix)
        self._token: str | Literal[False] | None = token
        self._token_env = token_env
        self._endpoint = checked_endpoint(endpoint)
        self._creates = boolean(create_bucket, field="create_bucket")
        self._is_private = boolean(private, field="private")
        self._metadata_ttl_s = number(metadata_ttl_s, field="metadata_ttl_s", low=0)
        self._request_timeout_s = seconds(request_timeout_s, field="request_timeout_s")
        self._connect_timeout_s = seconds(connect_timeout_s, field="connect_timeout_s")
        self._settings = XetSettings(
            compression=compression,
            streams=transfer_workers,
            read_timeout_s=self._request_timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            user_agent=_USER_AGENT,
        )
        self._downloads = self._workers("downloads", transfer_workers)
        self._uploads = self._workers("uploads", num_workers)
        self._xet: XetClient | None = None
        self._loop: EventLoopToken | None = None
        self._bucket: Bucket | None = None
        self._closed: anyio.Event | None = None

    # -- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        """See `Backend.open`.

        A bucket that does not exist is no failure, but logged: reads miss, and writes fail unless
        they are to create it.

        Raises:
            ConfigError: There is no token, neither given nor in the environment.
            TierUnavailableError: The Hub cannot be reached now.
            TierError: It refuses the token.
            MissingDependencyError: huggingface_hub or hf_xet is missing or too old.
        """
        try:
            token = find_token(self._token, self._token_env)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        self._loop = current_token()
        self._calls = 0
        self._idle = anyio.Event()
        self._closed = None
        self._closing = False
        self._detached = Detached()
        self._downloads.open()
        self._uploads.open()
        try:
            endpoint = await self._uploads.run(lambda _: load_hub())
            self._bucket = self._connected(self._endpoint or endpoint, token)
            self._reader = Reader(self._bucket)
            self._writer = Writer(
                self._bucket, create_bucket=self._creates, is_private=self._is_private
            )
            await self._look(self._bucket)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """See `Backend.aclose`.

        What hangs ends with its timeouts: within `request_timeout_s` a few times over.
        """
        if self._loop is None:
            return
        require_loop(self._loop, self.name)
        closed = self._closed
        if closed is None:
            closed = self._closed = anyio.Event()
            self._closing = True
            self._detached.spawn(self._close, closed)
        await closed.wait()

    async def _close(self, closed: anyio.Event) -> None:
        bucket = self._bucket
        try:
            if bucket is not None:
                bucket.hub.stop_waiting()
            if self._calls:
                await self._idle.wait()
            if self._xet is not None:  # stays in its place: a late hop must not make another one
                await self._uploads.run(XetClient.close)
            await self._downloads.aclose()
            await self._uploads.aclose()
            self._xet = None
            if bucket is not None:
                await bucket.hub.aclose()
        finally:
            self._bucket = None
            closed.set()

    def _workers(self, purpose: str, num_workers: int) -> Workers[XetClient]:
        return Workers(
            f"backend {self.name!r} ({purpose})",
            num_workers=num_workers,
            connect=self._connect,
            disconnect=lambda _: None,
        )

    def _connect(self) -> XetClient:
        """All workers share one client; the first one makes it."""
        if self._xet is None:
            self._xet = XetClient(self._settings)
        return self._xet

    def _connected(self, endpoint: str, token: str | None) -> Bucket:
        def find_again() -> str | None:
            try:
                return find_token(self._token, self._token_env)
            except ConfigError:  # the variable has gone: what it held may still be good
                return token

        hub = HubClient(
            endpoint,
            self.handle.bucket_id,
            find_again,
            user_agent=_USER_AGENT,
            request_timeout_s=self._request_timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            patience_s=_PATIENCE_S,
        )
        cache = MetadataCache(self._metadata_ttl_s)
        ledger = Ledger(cache)
        return Bucket(
            handle=self.handle,
            hub=hub,
            cache=cache,
            ledger=ledger,
            lookups=Lookups(hub, cache, ledger),
            grants=Grants(hub),
            downloads=self._downloads,
            uploads=self._uploads,
            troubles=Troubles(self.name),
        )

    async def _look(self, bucket: Bucket) -> None:
        """Check that the Hub knows us and the bucket."""
        try:
            info = await bucket.hub.bucket_info()
        except HubError as error:
            shown = bucket.troubles.mapped("open", error)
            if error.failure is not HubFailure.NO_BUCKET:
                raise shown from None
            bucket.troubles.passed("open")
            if not self._creates:
                _log.warning("%s", shown)
            return
        if self._is_private and not info.is_private:
            _log.warning(
                "%s: the bucket %s is public: everybody can read what is cached there; make it"
                " private, or say private=False",
                self.name,
                self.handle.bucket_id,
            )

    # -- the contract ----------------------------------------------------------------------------

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """See `Backend.read_many`."""
        with self._call():
            return await self._reader.read_many(requests)

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """See `Backend.write_many`."""
        with self._call() as bucket:
            outcomes: list[WriteOutcome | None] = [None] * len(requests)
            last = {request.name: place for place, request in enumerate(requests)}
            limit = self.capacity_bytes
            for place, request in enumerate(requests):
                if last[request.name] != place:
                    outcomes[place] = WriteOutcome(PutStatus.SKIPPED, "superseded")
                elif limit is not None and request.nbytes > limit:
                    outcomes[place] = WriteOutcome(PutStatus.REJECTED, "too_large")
            left = [place for place, outcome in enumerate(outcomes) if outcome is None]
            if left:
                written = await self._writer.write_many([requests[place] for place in left])
                for place, outcome in zip(left, written, strict=True):
                    outcomes[place] = outcome
            if limit is not None and bucket.ledger.nbytes > limit:
                await self._writer.evict(limit)
            ended = TierUnavailableError(self.name, "write", "its worker ended early")
            return [outcome or WriteOutcome(PutStatus.FAILED, None, ended) for outcome in outcomes]

    async def stat_many(self, names: Sequence[str]) -> list[StatOutcome]:
        """See `Backend.stat_many`."""
        with self._call():
            return await self._reader.stat_many(names)

    async def delete_many(self, names: Sequence[str]) -> list[DeleteOutcome]:
        """See `Backend.delete_many`."""
        with self._call():
            return await self._writer.delete_many(names)

    async def list_names(self, prefix: str = "") -> AsyncIterator[StoredName]:
        """See `Backend.list_names`."""
        listing = Listing()
        while not listing.has_ended:
            with self._call() as bucket:
                asked = bucket.cache.now
                try:
                    files = await bucket.hub.tree(self.handle.prefix, listing)
                except HubError as error:
                    if error.failure is HubFailure.NO_BUCKET:
                        return
                    raise bucket.troubles.mapped("list", error) from None
                bucket.troubles.passed("list")
            for path, info in files:
                name = self.handle.name_of(path)
                if name is not None:
                    bucket.cache.learn(path, info, asked=asked)
                    if name.startswith(prefix):
                        yield StoredName(name, info.size)

    async def status(self) -> BackendStatus:
        """See `Backend.status`. Nothing is asked: the figures are of this process."""
        bucket = self._bucket
        if bucket is None or self._closing:
            return BackendStatus(is_healthy=False, reason=f"{self.name} is not open")
        reason = bucket.troubles.reason
        details = bucket.figures(self.capacity_bytes)
        return BackendStatus(is_healthy=not reason, reason=reason, details=details)

    async def access(self) -> BucketAccess:
        """Ask the Hub who we are there, and who can read the bucket.

        Raises:
            StoreClosedError: Not open.
            TierError: It does not answer, or does not know the token.
        """
        with self._call() as bucket:
            return await bucket.access()

    @contextmanager
    def _call(self) -> Iterator[Bucket]:
        """Let a call run if the backend is open; closing waits for it."""
        if self._bucket is None or self._loop is None or self._closing:
            raise StoreClosedError(f"backend {self.name!r} is not open")
        require_loop(self._loop, f"backend {self.name!r}")
        self._calls += 1
        try:
            yield self._bucket
        finally:
            self._calls -= 1
            if not self._calls and self._closing:
                self._idle.set()
