"""Log messages that may repeat."""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["Rarely", "some_of"]

_INTERVAL_S: Final = 60.0
_NAMES_SHOWN: Final = 10


class Rarely:
    """Logs one kind of message at most once a minute, and then how many were left out."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next_s = float("-inf")
        self._left_out = 0

    def log(
        self,
        message: str,
        *args: object,
        error: BaseException | None = None,
        **fields: str,
    ) -> None:
        """Log a warning, or with `error` an error, or leave it out.

        Args:
            message: What happened, with ``%`` for each of `args`.
            *args: What is put there.
            error: What was raised; its traceback is shown.
            **fields: Further fields of the record: tier, operation, outcome.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        if self._left_out:
            message, args = message + " (and %d more since the last time)", (*args, self._left_out)
        self._next_s, self._left_out = now_s + _INTERVAL_S, 0
        level = logging.WARNING if error is None else logging.ERROR
        self._logger.log(level, message, *args, exc_info=error, extra=fields, stacklevel=2)


def some_of(names: tuple[str, ...]) -> str:
    """Return the first ten names for a log message, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
