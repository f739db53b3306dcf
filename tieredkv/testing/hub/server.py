"""A running local Hub, as tests see it, and the one that runs in threads of this process."""

from __future__ import annotations

import abc
import contextlib
from types import TracebackType
from typing import Self, cast

import attrs

from tieredkv.testing.hub.application import Application
from tieredkv.testing.hub.control import Controls
from tieredkv.testing.hub.faults import Fault
from tieredkv.testing.hub.request_log import LogEntry
from tieredkv.testing.hub.settings import HubSettings
from tieredkv.testing.hub.transport import Listener

__all__ = ["LocalHub", "ThreadHub"]


class LocalHub(abc.ABC):
    """A local Hub that runs. A context manager that stops it. Any thread may call.

    Attributes:
        settings: As it was started; `root` is where it keeps everything.
        endpoint: Its address, for ``HfApi(endpoint=...)``.
        token: Access token of its owner, who may do everything, for ``HfApi(token=...)``.
    """

    def __init__(self, settings: HubSettings, endpoint: str) -> None:
        self.settings: HubSettings = settings
        self.endpoint: str = endpoint
        self.token: str = settings.token
        self._resources = contextlib.ExitStack()

    @abc.abstractmethod
    def call(self, command: str, **arguments: object) -> object:
        """Carry out one of `Controls.COMMANDS`; the methods below are the way to do it.

        Raises:
            ValueError: It refuses its arguments.
            LookupError: It is about something that does not exist.
            RuntimeError: The Hub does not run any more.
        """

    @abc.abstractmethod
    def _end(self) -> None:
        """End every thread or process; maybe again."""

    def adopt(self, resources: contextlib.ExitStack) -> None:
        """Close `resources` at the end of `stop`."""
        self._resources = resources

    def stop(self) -> None:
        """Cut all connections and end every thread or process; a temporary root is removed.

        What waits in a fault does not hold it up. A second call does nothing.
        """
        self._end()
        self._resources.close()

    @property
    def log(self) -> list[LogEntry]:
        """The requests so far. Of a Hub in threads it is the live list, else a copy."""
        return cast("list[LogEntry]", self.call("log"))

    def clear_log(self) -> None:
        """Forget the requests so far."""
        self.call("clear_log")

    def wait_for_request(
        self, method: str = "*", path: str = "", *, count: int = 1, timeout_s: float = 30.0
    ) -> None:
        """Wait until requests are in the log, answered or not.

        Args:
            method: HTTP method, or ``"*"``.
            path: Regular expression, searched in the path.
            count: How many of them, since the log was cleared.
            timeout_s: Longest time to wait.

        Raises:
            TimeoutError: There were fewer in that time.
        """
        found = self.call(
            "wait_for_request", method=method, path=path, count=count, timeout_s=timeout_s
        )
        if not found:
            raise TimeoutError(f"fewer than {count} requests {method} {path!r} in {timeout_s} s")

    def inject(self, fault: Fault) -> int:
        """Put a fault in force; return its number, which is in the log of who meets it."""
        return cast("int", self.call("inject", fault=attrs.asdict(fault)))

    def harmed(self, index: int) -> int:
        """Return how many requests a fault has met.

        Raises:
            LookupError: There was no such fault.
        """
        return cast("int", self.call("harmed", index=index))

    def release(self) -> None:
        """Let go the requests that a fault with `hold` holds now."""
        self.call("release")

    def clear_faults(self) -> None:
        """End all faults, and let go what they hold."""
        self.call("clear_faults")

    def add_token(self, user: str, *, can_write: bool = True) -> str:
        """Return a new access token for `user`, who owns the namespace of that name."""
        return cast("str", self.call("add_token", user=user, can_write=can_write))

    def revoke_token(self, token: str) -> None:
        """Refuse an access token from now on."""
        self.call("revoke_token", token=token)

    def rotate_token(self) -> str:
        """Replace the owner's access token; return the new one. The old one is refused.

        Raises:
            LookupError: It was revoked.
        """
        self.token = cast("str", self.call("rotate_token"))
        return self.token

    def expire_xet_tokens(self) -> None:
        """Let the CAS refuse the tokens that were issued so far, before their time."""
        self.call("expire_xet_tokens")

    def set_xet_token_ttl(self, seconds: int) -> None:
        """Give the tokens of the CAS that are issued from now on another life."""
        self.call("set_xet_token_ttl", seconds=seconds)

    def set_private(self, bucket_id: str, *, is_private: bool) -> None:
        """Change who may read a bucket, as its owner would.

        Raises:
            LookupError: There is no such bucket.
        """
        self.call("set_private", bucket_id=bucket_id, is_private=is_private)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class ThreadHub(LocalHub):
    """A local Hub in threads of this process.

    Not for hf_xet before 1.7, which holds the GIL while it waits for us.

    Args:
        settings: How to start it.
    """

    def __init__(self, settings: HubSettings) -> None:
        settings.root.mkdir(parents=True, exist_ok=True)
        self._listener = Listener(settings.port)
        super().__init__(settings, self._listener.endpoint)
        try:
            application = Application(settings)
        except BaseException:
            self._listener.close()
            raise
        self._controls = Controls(application, settings.token)
        self._listener.serve(application)
        self._stopped = False

    def call(self, command: str, **arguments: object) -> object:
        """See `LocalHub.call`; the log and the faults outlive the Hub."""
        return self._controls.call(command, **arguments)

    def _end(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._listener.close()
