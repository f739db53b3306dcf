"""How requests to the Hub fail, as far as callers act differently."""

from __future__ import annotations

import enum

__all__ = ["HubError", "HubFailure"]


class HubFailure(enum.Enum):
    """What went wrong, as far as callers act differently."""

    NO_BUCKET = "no bucket"
    """There is none, or not for this token: the Hub does not tell which."""
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    QUOTA = "quota"
    BUSY = "busy"
    """It wants to be left alone for longer than the caller can wait."""
    UNREACHABLE = "unreachable"
    """No answer, or one that tells of an outage."""
    REFUSED = "refused"
    """It does not take the request as it is."""


class HubError(Exception):
    """A request to the Hub failed.

    Attributes:
        failure: What went wrong.
        reason: The same in words, with the number of attempts where there were several.
        is_ambiguous: The request may have taken effect, or may still do so.
        is_transient: Another try may succeed.
    """

    def __init__(
        self,
        failure: HubFailure,
        reason: str,
        *,
        is_ambiguous: bool = False,
        is_transient: bool = False,
    ) -> None:
        super().__init__(reason)
        self.failure: HubFailure = failure
        self.reason: str = reason
        self.is_ambiguous: bool = is_ambiguous
        self.is_transient: bool = is_transient

    def copy(self) -> HubError:
        """Return the same error, to be raised once more."""
        return HubError(
            self.failure,
            self.reason,
            is_ambiguous=self.is_ambiguous,
            is_transient=self.is_transient,
        )
