"""What a test may do to a running Hub, callable from here and from another process."""

from __future__ import annotations

from typing import Any, Final

from tieredkv.testing.hub.accounts import Account, new_access_token
from tieredkv.testing.hub.application import Application
from tieredkv.testing.hub.faults import Fault
from tieredkv.testing.hub.request_log import LogEntry

__all__ = ["Controls"]


class Controls:
    """Commands by name; arguments and results are JSON. Any thread may call.

    Args:
        application: The Hub.
        token: Its owner's access token.
    """

    COMMANDS: Final = frozenset(
        {
            "add_token",
            "clear_faults",
            "clear_log",
            "expire_xet_tokens",
            "harmed",
            "inject",
            "log",
            "release",
            "revoke_token",
            "rotate_token",
            "set_private",
            "set_xet_token_ttl",
            "wait_for_request",
        }
    )

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._token = token

    def call(self, command: str, **arguments: object) -> object:
        """Carry out a command.

        Raises:
            ValueError: There is no such command, or it refuses its arguments.
            LookupError: It is about something that does not exist.
        """
        if command not in self.COMMANDS:
            raise ValueError(f"there is no command {command!r}")
        result: object = getattr(self, command)(**arguments)
        return result

    def log(self) -> list[LogEntry]:
        """See `LocalHub.log`."""
        return self._application.log.entries

    def clear_log(self) -> None:
        """See `LocalHub.clear_log`."""
        self._application.log.entries.clear()

    def wait_for_request(self, method: str, path: str, count: int, timeout_s: float) -> bool:
        """See `LocalHub.wait_for_request`."""
        return self._application.log.wait_for(method, path, count=count, timeout_s=timeout_s)

    def inject(self, fault: dict[str, Any]) -> int:
        """See `LocalHub.inject`."""
        return self._application.faults.add(Fault(**fault))

    def harmed(self, index: int) -> int:
        """See `LocalHub.harmed`."""
        return self._application.faults.harmed(index)

    def release(self) -> None:
        """See `LocalHub.release`."""
        self._application.faults.release()

    def clear_faults(self) -> None:
        """See `LocalHub.clear_faults`."""
        self._application.faults.clear()

    def add_token(self, user: str, *, can_write: bool) -> str:
        """See `LocalHub.add_token`."""
        token = new_access_token()
        self._application.accounts.add(token, Account(user=user, can_write=can_write))
        return token

    def revoke_token(self, token: str) -> None:
        """See `LocalHub.revoke_token`."""
        self._application.accounts.revoke(token)

    def rotate_token(self) -> str:
        """See `LocalHub.rotate_token`."""
        old, self._token = self._token, new_access_token()
        self._application.accounts.rotate(old, self._token)
        return self._token

    def expire_xet_tokens(self) -> None:
        """See `LocalHub.expire_xet_tokens`."""
        self._application.tokens.expire_all()

    def set_xet_token_ttl(self, seconds: int) -> None:
        """See `LocalHub.set_xet_token_ttl`."""
        self._application.tokens.ttl_s = seconds

    def set_private(self, bucket_id: str, *, is_private: bool) -> None:
        """See `LocalHub.set_private`."""
        buckets = self._application.buckets
        with buckets.lock:
            buckets.set_private(bucket_id, is_private=is_private)
