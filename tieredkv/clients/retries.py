"""How often and how soon a server is asked again: one budget and one pause for all tasks."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["Retries"]

_BUDGET: Final = 20.0
_PRICE: Final = 1.0
_REWARD: Final = 0.1
_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 4.0
_LONGEST_PAUSE_S: Final = 600.0
"""Twice the Hub's window of rate limits: no answer shuts the tier for good."""

_RATE_LIMIT: Final = re.compile(r"(?:^|;)\s*(?P<key>[rt])=(?P<value>[0-9]{1,9})")


class Retries:
    """A budget of retries that successes refill, and a pause that the server asked for.

    Used on one event loop. While most requests succeed, each may be tried again; in an outage the
    budget is soon spent, and then every request is sent once.

    Source: gRPC proposal A6, "Throttling Retry Attempts and Hedged RPCs" (each retry costs a token,
    each success returns a tenth); there, retries stop at half of the budget, here at its end.

    Attributes:
        granted: How many retries there were so far.
    """

    def __init__(self) -> None:
        self.granted: int = 0
        self._tokens = _BUDGET
        self._paused_until = 0.0

    @property
    def pause_s(self) -> float:
        """Seconds that the server wants to be left alone for from now on; 0 for none."""
        return max(0.0, self._paused_until - time.monotonic())

    def succeeded(self) -> None:
        """Note a success."""
        self._tokens = min(_BUDGET, self._tokens + _REWARD)

    def take(self) -> bool:
        """Whether one more retry may be made; it is paid for."""
        if self._tokens < _PRICE:
            return False
        self._tokens -= _PRICE
        self.granted += 1
        return True

    def heed(self, headers: Mapping[str, str]) -> None:
        """Take note of ``Retry-After`` (seconds or a date) and of a ``RateLimit`` that is used up.

        Source: RFC 9110, 10.2.3; draft-ietf-httpapi-ratelimit-headers (``r``: left, ``t``: until
        the next window), as the Hub sends it.
        """
        wait_s = max(
            _retry_after_s(headers.get("retry-after", "")),
            _rate_limit_s(headers.get("ratelimit", "")),
        )
        if wait_s:
            wait_s = min(wait_s, _LONGEST_PAUSE_S)
            self._paused_until = max(self._paused_until, time.monotonic() + wait_s)

    @staticmethod
    def delay_s(attempt: int) -> float:
        """Return how long to wait after failed attempt number `attempt`, counted from 1.

        Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (full
        jitter).
        """
        longest_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2**attempt)
        return random.uniform(_FIRST_DELAY_S / 2, longest_s)  # noqa: S311 - no secret


def _retry_after_s(text: str) -> float:
    text = text.strip()
    if text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(
        0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    )


def _rate_limit_s(text: str) -> float:
    parts = {found["key"]: int(found["value"]) for found in _RATE_LIMIT.finditer(text)}
    return float(parts.get("t", 0)) if parts.get("r") == 0 else 0.0
