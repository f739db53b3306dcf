"""What the Hub answers: files, buckets, grants, and what a refusal means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from tieredkv.clients.hub_failures import HubError, HubFailure

__all__ = ["BucketInfo", "FileInfo", "Grant", "failure_of", "field", "files", "parsed", "shown"]

_LONGEST_MESSAGE: Final = 300
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_CERTAINLY_NOT_DONE: Final = frozenset({429, 500, 503})
_QUOTA: Final = re.compile("quota|storage limit|exceeded", re.IGNORECASE)


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


def failure_of(response: Any, bucket_id: str) -> HubError:
    """Return what an answer that is no success means for a request about a bucket."""
    status: int = response.status_code
    said = _shortened(response.headers.get("x-error-message") or _body_text(response))
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


def parsed(response: Any) -> Any:
    """Return an answer's JSON.

    Raises:
        HubError: It is none.
    """
    try:
        return response.json()
    except ValueError:
        raise HubError(
            HubFailure.REFUSED, f"the answer to {response.url.path} is not JSON"
        ) from None


def field(answer: Any, name: str, kind: type[Any]) -> Any:
    """Return a field of an answer.

    Raises:
        HubError: It is missing, or of another kind.
    """
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
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


def _body_text(response: Any) -> str:
    try:
        text: str = response.text
    except Exception:  # noqa: BLE001 - not read, or not text: there is nothing to show
        return ""
    return text


def shown(error: BaseException) -> str:
    """Return an error as it is told to users: one line, not too long."""
    return _shortened(f"{type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
