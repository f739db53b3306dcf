"""The record of what clients asked, and what they got."""

from __future__ import annotations

import re
import threading
from typing import Final, TypedDict

from tieredkv.config import KiB
from tieredkv.testing.hub.exchange import Request

__all__ = ["LogEntry", "RequestLog"]

_KEPT_BODY_BYTES: Final = 64 * KiB
_CAS_PATH: Final = "/cas/"


class LogEntry(TypedDict):
    """One request. It appears on arrival and is complete before the client has the answer.

    Attributes:
        method: In capitals.
        path: As it was sent, percent-encoded, without the query. Those of the CAS begin with
            ``/cas/``; xorbs are read from ``/cas/data/``.
        query: What followed ``?``, encoded.
        status: Of the answer; 0 as long as there is none, which is for ever if the connection ends.
        user: Whose access token it carried; ``""`` for none, ``"?"`` for one that we do not know.
            CAS tokens belong to nobody.
        user_agent: As it was sent.
        body: What a call of the bucket API carried, if it is text of at most 64 KiB.
        request_bytes: Size of the request's body.
        response_bytes: Size of the answer's body, before truncation.
        fault: Number of the fault that it met; None without.
    """

    method: str
    path: str
    query: str
    status: int
    user: str
    user_agent: str
    body: str | None
    request_bytes: int
    response_bytes: int
    fault: int | None


class RequestLog:
    """Log entries in the order of arrival. Any thread may call.

    Attributes:
        entries: The list itself.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._grown = threading.Condition()

    def open(self, request: Request, *, user: str, fault: int | None) -> LogEntry:
        """Add a request that has arrived."""
        entry = LogEntry(
            method=request.method,
            path=request.path,
            query=request.query,
            status=0,
            user=user,
            user_agent=request.headers.get("user-agent", ""),
            body=_text(request),
            request_bytes=len(request.body),
            response_bytes=0,
            fault=fault,
        )
        with self._grown:
            self.entries.append(entry)
            self._grown.notify_all()
        return entry

    def wait_for(self, method: str, path: str, *, count: int, timeout_s: float) -> bool:
        """Wait until `count` requests with this method and a matching path are in the log.

        Returns:
            False if there were fewer when the time was up.
        """

        def arrived() -> bool:
            found = (
                method in ("*", entry["method"]) and re.search(path, entry["path"])
                for entry in self.entries
            )
            return sum(map(bool, found)) >= count

        with self._grown:
            return self._grown.wait_for(arrived, timeout_s)


def _text(request: Request) -> str | None:
    if request.path.startswith(_CAS_PATH) or not 0 < len(request.body) <= _KEPT_BODY_BYTES:
        return None
    try:
        return request.body.decode()
    except UnicodeDecodeError:
        return None
