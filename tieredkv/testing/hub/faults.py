"""Faults on schedule: which request, which time, and what goes wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

import attrs

from tieredkv.config import number, whole
from tieredkv.errors import ConfigError
from tieredkv.testing.hub.exchange import Request, Response

__all__ = ["Fault", "Faults", "Meeting"]


def _pattern(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None:
        try:
            re.compile(value)
        except re.error as error:
            raise ConfigError(f"{attribute.name}={value!r} is not a pattern: {error}") from None


def _count(_: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None:
        whole(value, field=attribute.name, low=0)


@attrs.frozen(kw_only=True)
class Fault:
    """What goes wrong with some requests. The effects may be combined.

    Attributes:
        method: HTTP method in capitals, ``"*"`` for all.
        path: Regular expression, searched in the path (without the query) as it was sent.
        after: So many matching requests pass unharmed first.
        times: Then so many are harmed; None: all.
        delay_s: They wait so long.
        hold: They wait until somebody calls `LocalHub.release`.
        status: They are answered with this status, …
        headers: … these headers …
        body: … and this text.
        retry_after_s: Adds ``Retry-After`` to `headers`.
        rate_limit_s: Adds a ``RateLimit`` header: nothing left, new window in so many seconds.
        drop: They are not answered: the connection ends.
        carried_out: With `status` or `drop`: the request takes effect all the same.
        truncate_bytes: The answer ends after so many bytes of its body.
        repeat: The body of the answer comes again and again, until the client hangs up.
        ignore_range: All of a content is sent, whatever part of it was asked for.
        corrupt_byte: This byte of the answer's body is inverted; negative counts from the end. In
            the first 8 bytes of a xorb's range, a chunk's header, it does not pass unnoticed.
        failed: Regular expression: operations of a batch whose path it finds fail, the others
            succeed. The answer has 200 if any succeeds, 422 if none does, or `status`.
    """

    method: str = "*"
    path: str = attrs.field(default="", validator=_pattern)
    after: int = attrs.field(default=0, validator=_count)
    times: int | None = attrs.field(default=None, validator=_count)
    delay_s: float = 0.0
    hold: bool = False
    status: int | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: str = ""
    retry_after_s: int | None = attrs.field(default=None, validator=_count)
    rate_limit_s: int | None = attrs.field(default=None, validator=_count)
    drop: bool = False
    carried_out: bool = False
    truncate_bytes: int | None = attrs.field(default=None, validator=_count)
    repeat: bool = False
    ignore_range: bool = False
    corrupt_byte: int | None = None
    failed: str | None = attrs.field(default=None, validator=_pattern)

    def __attrs_post_init__(self) -> None:
        number(self.delay_s, field="delay_s", low=0)
        if self.status is not None:
            whole(self.status, field="status", low=200, high=599)

    def matches(self, request: Request) -> bool:
        """Whether it is about this request."""
        return self.method in ("*", request.method) and bool(re.search(self.path, request.path))

    @property
    def lets_through(self) -> bool:
        """Whether the request takes effect."""
        return self.carried_out or self.failed is not None or not (self.drop or self.status)

    def alter(self, request: Request) -> Request:
        """Return the request as the routes see it."""
        failing = None if self.failed is None else re.compile(self.failed)
        headers = dict(request.headers)
        if self.ignore_range:
            headers.pop("range", None)
        return attrs.evolve(request, failing=failing, headers=headers)

    def answer(self, response: Response | None) -> Response:
        """Return what the client gets in the place of `response` (None: there is none)."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.rate_limit_s is not None:
            headers["RateLimit"] = f'"api";r=0;t={self.rate_limit_s}'
        if response is None or (self.status is not None and self.failed is None):
            return Response(self.status or 0, self.body.encode(), headers)
        response = attrs.evolve(
            response, status=self.status or response.status, headers={**response.headers, **headers}
        )
        return response if self.corrupt_byte is None else self._corrupt(response, self.corrupt_byte)

    @staticmethod
    def _corrupt(response: Response, index: int) -> Response:
        body = bytearray(response.body if response.span is None else response.span.read())
        if -len(body) <= index < len(body):
            body[index] ^= 0xFF
        return attrs.evolve(response, body=bytes(body), span=None)


@attrs.frozen
class Meeting:
    """A request met a fault.

    Attributes:
        index: Number of the fault.
        fault: The fault.
        releases: How often `Faults.release` had been called by then.
    """

    index: int
    fault: Fault
    releases: int


@attrs.define
class _Standing:
    """A fault in force, with what it has seen."""

    fault: Fault
    seen: int = 0
    harmed: int = 0
    ended: bool = False

    def meets(self, request: Request) -> bool:
        if self.ended or not self.fault.matches(request):
            return False
        self.seen += 1
        turn = self.seen - self.fault.after
        if turn < 1 or (self.fault.times is not None and turn > self.fault.times):
            return False
        self.harmed += 1
        return True


class Faults:
    """The faults in force, first come first served. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._standing: list[_Standing] = []
        self._releases = 0
        self._closed = False

    def add(self, fault: Fault) -> int:
        """Put a fault in force; return its number, counted from 0."""
        with self._changed:
            self._standing.append(_Standing(fault))
            return len(self._standing) - 1

    def clear(self) -> None:
        """End all faults, and let go what they hold."""
        with self._changed:
            for standing in self._standing:
                standing.ended = True
        self.release()

    def harmed(self, index: int) -> int:
        """Return how many requests a fault has met so far, ended or not.

        Raises:
            IndexError: There was no such fault.
        """
        with self._changed:
            return self._standing[index].harmed

    def meet(self, request: Request) -> Meeting | None:
        """Return the fault that a request meets, and count it."""
        with self._changed:
            for index, standing in enumerate(self._standing):
                if standing.meets(request):
                    return Meeting(index, standing.fault, self._releases)
        return None

    def wait(self, meeting: Meeting) -> None:
        """Wait as long as the fault says, or until `close`."""
        fault = meeting.fault
        with self._changed:
            if fault.delay_s:
                self._changed.wait_for(lambda: self._closed, fault.delay_s)
            if fault.hold:
                # Counted from the meeting on: a release in between must not be missed.
                self._changed.wait_for(lambda: self._closed or self._releases > meeting.releases)

    def release(self) -> None:
        """Let go the requests that wait now."""
        with self._changed:
            self._releases += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let nothing wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
