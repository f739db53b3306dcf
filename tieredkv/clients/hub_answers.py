"""What the Hub answers: files, buckets, grants, and what a refusal means.

Nothing of it is believed before it was looked at: a Hub, or what answers in its place, may say
anything, of any size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from tieredkv.clients.hub_failures import HubError, HubFailure
from tieredkv.config import MiB

__all__ = [
    "Answer",
    "BucketInfo",
    "FileInfo",
    "Grant",
    "Listing",
    "failure_of",
    "field",
    "files",
    "grant_of",
    "origin",
    "parsed",
    "read",
    "refusals",
    "shown",
]

MAX_ANSWER_BYTES: Final = 16 * MiB
"""More than a thousand files of the longest names take."""

_ENCODINGS: Final = frozenset({"", "identity", "gzip", "deflate"})
"""Each makes at most a thousand bytes of one: no other, and not several."""

_MOST_EMPTY_PAGES: Final = 100
_LATEST_S: Final = 2**40
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_PORTS: Final = {"http": 80, "https": 443}

_LONGEST_MESSAGE: Final = 300
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_CERTAINLY_NOT_DONE: Final = frozenset({429, 500, 503})
_QUOTA: Final = re.compile("quota|storage limit|exceeded", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Answer:
    """An answer, read to its end.

    Attributes:
        status: HTTP status.
        headers: By name, in whatever case.
        body: Decoded.
        path: What was asked for.
        next_page: Address of what follows a listing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = attrs.field(repr=False)
    path: str
    next_page: str | None

    @property
    def is_success(self) -> bool:
        """Whether the status says so."""
        return 200 <= self.status < 300


@attrs.frozen
class FileInfo:
    """A file in a bucket: the Xet hash of its content, which never changes, and its bytes."""

    hash: str
    size: int


@attrs.frozen
class BucketInfo:
    """A bucket, and whether others can read it."""

    is_private: bool


@attrs.frozen(eq=False)
class Grant:
    """Access to the contents of a bucket for some minutes.

    Attributes:
        cas_url: Where the contents are.
        token: What to say there.
        expires_s: Unix time.
    """

    cas_url: str
    token: str = attrs.field(repr=False)
    expires_s: float


class Listing:
    """Where a listing in pages is.

    Attributes:
        page: Address of the next page; None at the beginning and at the end.
        has_ended: Whether there is no more.
    """

    def __init__(self) -> None:
        self.page: str | None = None
        self.has_ended: bool = False
        self._pages: set[str] = set()
        self._num_empty = 0

    def turn(self, page: str | None, *, is_empty: bool) -> None:
        """Go on to the next page (None: there is none) after one without files, or with some.

        Raises:
            HubError: It goes in a circle, or on and on with nothing in it.
        """
        self._num_empty = self._num_empty + 1 if is_empty else 0
        if page in self._pages or self._num_empty > _MOST_EMPTY_PAGES:
            raise HubError(HubFailure.REFUSED, "a listing of the Hub does not come to its end")
        self.page, self.has_ended = page, page is None
        if page is not None:
            self._pages.add(page)


async def read(response: Any) -> Answer:
    """Read the vendor's response, which is a stream.

    Raises:
        HubError: It is too large, or packed in ways that we do not take.
        Exception: The vendor's, where it breaks off.
    """
    if response.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
        raise HubError(HubFailure.REFUSED, "an answer of the Hub is packed in an unknown way")
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            limit = f"more than {MAX_ANSWER_BYTES // MiB} MiB"
            raise HubError(HubFailure.REFUSED, f"an answer of the Hub has {limit}")
    return Answer(
        status=response.status_code,
        headers=response.headers,
        body=bytes(body),
        path=response.url.path,
        next_page=response.links.get("next", {}).get("url"),
    )


def origin(address: str) -> tuple[str, str | None, str | None, int | None]:
    """Return scheme, user, host and port of an address; two of one server have the same."""
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None, address, None
    return parts.scheme, parts.username, parts.hostname, port


def failure_of(answer: Answer, bucket_id: str, secret: str | None) -> HubError:
    """Return what an answer that is no success means for a request about a bucket.

    What the Hub says is repeated, but for `secret`, if it repeats that.
    """
    status = answer.status
    text = answer.headers.get("x-error-message") or answer.body.decode(errors="replace")
    said = _shortened(_without(secret, text))
    reason = f"HTTP {status}" + (f": {said}" if said else "")
    if status == 401:
        return HubError(HubFailure.UNAUTHORIZED, reason)
    if status == 403:
        kind = HubFailure.QUOTA if _QUOTA.search(said) else HubFailure.FORBIDDEN
        return HubError(kind, reason)
    if status == 404:
        return HubError(HubFailure.NO_BUCKET, f"there is no bucket {bucket_id} ({reason})")
    if status in _TRANSIENT:
        return HubError(
            HubFailure.UNREACHABLE,
            reason,
            is_transient=True,
            is_ambiguous=status not in _CERTAINLY_NOT_DONE,
        )
    return HubError(HubFailure.REFUSED, reason)


def parsed(answer: Answer) -> Any:
    """Return an answer's JSON.

    Raises:
        HubError: It is none.
    """
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise HubError(HubFailure.REFUSED, f"the answer to {answer.path} is not JSON") from None


def field(answer: Any, name: str, kind: type[Any]) -> Any:
    """Return a field of an answer.

    Raises:
        HubError: It is missing, or of another kind.
    """
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise HubError(HubFailure.REFUSED, f"an answer of the Hub has no {name!r}")
    return value


def files(answer: Any) -> Iterator[tuple[str, FileInfo]]:
    """Yield the files of a listing by path.

    Raises:
        HubError: It is no listing.
    """
    if not isinstance(answer, list):
        raise HubError(HubFailure.REFUSED, "an answer of the Hub is no list of files")
    for entry in answer:
        if isinstance(entry, dict) and entry.get("type") == "file":
            path, size = field(entry, "path", str), field(entry, "size", int)
            if size < 0:
                raise HubError(HubFailure.REFUSED, f"an answer of the Hub has a size of {size}")
            yield path, FileInfo(field(entry, "xetHash", str), size)


def grant_of(answer: Any, endpoint: str) -> Grant:
    """Return the grant that a Hub gives.

    Contents go where it says, but not with less protection than the Hub itself has, and into a
    directory only if the Hub is one of this machine's, for tests.

    Raises:
        HubError: It is none, or leads to where we do not go.
    """
    cas_url, expires_s = field(answer, "casUrl", str), field(answer, "exp", int)
    if not 0 <= expires_s < _LATEST_S:
        raise HubError(HubFailure.REFUSED, "an answer of the Hub has an 'exp' that is no time")
    scheme, _, host, _ = origin(endpoint)
    allowed = {"https"}
    if scheme == "http":
        allowed |= {"http", "local"} if host in _LOOPBACK else {"http"}
    if origin(cas_url)[0] not in allowed:
        where = _shortened(cas_url.partition(":")[0])
        raise HubError(HubFailure.REFUSED, f"the Hub sends contents elsewhere, by {where!r}")
    return Grant(cas_url, field(answer, "accessToken", str), float(expires_s))


def refusals(answer: Any, secret: str | None) -> dict[str, str]:
    """Return path → reason of the operations of a batch that failed, as `failure_of` does.

    Raises:
        HubError: It is no answer to a batch.
    """
    reasons: dict[str, str] = {}
    for entry in field(answer, "failed", list):
        path = field(entry, "path", str)
        reasons[path] = _shortened(_without(secret, str(entry.get("error", "no reason"))))
    return reasons


def _without(secret: str | None, text: str) -> str:
    return text if secret is None else text.replace(secret, "…")


def shown(error: BaseException) -> str:
    """Return an error as it is told to users: one line, not too long."""
    return _shortened(f"{type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
