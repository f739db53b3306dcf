"""What happens in a store, told to those who subscribe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from tieredkv.observe.logs import Rarely

__all__ = ["CacheEvent", "EventKind", "Listener", "Listeners", "Subscription"]

_log: Final = logging.getLogger(__name__)

EventKind: TypeAlias = Literal["stored", "accessed", "evicted", "deleted"]


@attrs.frozen
class CacheEvent:
    """Something that happened to values of one tier.

    Attributes:
        kind: ``"stored"``, ``"accessed"``, ``"evicted"`` or ``"deleted"``.
        tier: Name of the tier, not empty.
        names: Wire names.
        sizes: Payload bytes, one for each name.
    """

    kind: EventKind
    tier: str
    names: Sequence[str]
    sizes: Sequence[int]

    def __attrs_post_init__(self) -> None:
        if not self.tier:
            raise ValueError("an event needs the name of its tier")
        if len(self.names) != len(self.sizes):
            raise ValueError(f"an event with {len(self.names)} names and {len(self.sizes)} sizes")


Listener: TypeAlias = Callable[[CacheEvent], None]
"""Called on the event loop, after the store's own state is settled; must return soon."""


class Listeners:
    """Those who want to hear of events. One that raises is logged and harms nobody.

    Attributes:
        registered: The listeners, by subscription; empty when events need not even be made.
    """

    __slots__ = ("_raised", "registered")

    def __init__(self) -> None:
        self.registered: dict[Subscription, Listener] = {}
        self._raised = Rarely(_log)

    def subscribe(self, listener: Listener) -> Subscription:
        """Call `listener` with every event from now on, until the subscription is cancelled."""
        subscription = Subscription(self.registered)
        self.registered[subscription] = listener
        return subscription

    def emit(self, kind: EventKind, tier: str, names: Sequence[str], sizes: Sequence[int]) -> None:
        """Tell every listener; costs nothing when there is none."""
        if not self.registered or not names:
            return
        event = CacheEvent(kind, tier, names, sizes)
        for listener in tuple(self.registered.values()):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a listener is not ours
                self._raised.log("a listener raised on %s", kind, error=error, tier=tier)


class Subscription:
    """Handle of one listener; `cancel` ends it and may be called twice."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: dict[Subscription, Listener]) -> None:
        self._listeners = listeners

    def cancel(self) -> None:
        """Stop the events."""
        self._listeners.pop(self, None)
