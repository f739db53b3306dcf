"""Access to contents: asked for once by all who need it, and again before it ends."""

from __future__ import annotations

import time
from typing import Final

import anyio

from tieredkv.clients.hub import HubClient, Scope
from tieredkv.clients.hub_answers import Grant
from tieredkv.clients.hub_failures import HubError

__all__ = ["Grants"]

_MARGIN_S: Final = 60.0
"""A grant is not begun with in its last seconds: a batch takes some."""

_SHORTEST_S: Final = 30.0
"""A grant that seems to end sooner is used all the same: our clock, or the Hub's, may be wrong, and
one that is refused is replaced."""


class _Slot:
    """The grant of one scope, and what came of the last time it was asked for."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.grant: Grant | None = None
        self.renew_at = 0.0
        self.asked = 0
        self.error: HubError | None = None

    @property
    def current(self) -> Grant | None:
        return self.grant if time.monotonic() < self.renew_at else None


class Grants:
    """Grants by scope. On one event loop. A failure reaches who waited for it, and is not kept."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._slots: dict[Scope, _Slot] = {"read": _Slot(), "write": _Slot()}

    async def get(self, scope: Scope) -> Grant:
        """Return a grant that is good for a while.

        Raises:
            HubError: There is none to be had.
        """
        slot = self._slots[scope]
        if (grant := slot.current) is not None:
            return grant
        asked = slot.asked
        async with slot.lock:
            if (grant := slot.current) is not None:
                return grant
            if slot.asked != asked and slot.error is not None:
                raise slot.error.copy()
            try:
                grant = await self._hub.grant(scope)
            except HubError as error:
                slot.error = error.copy()
                slot.asked += 1
                raise
            left_s = grant.expires_s - time.time()
            good_s = max(left_s - min(_MARGIN_S, left_s / 4), _SHORTEST_S)
            slot.error = None
            slot.asked += 1
            slot.grant = grant
            slot.renew_at = time.monotonic() + good_s
            return grant

    def discard(self, scope: Scope, grant: Grant) -> None:
        """Do not give a grant out any more."""
        if self._slots[scope].grant is grant:
            self._slots[scope].grant = None
            self._slots[scope].renew_at = 0.0
