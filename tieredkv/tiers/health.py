"""Whether a tier is worth asking: a circuit breaker with a probe in the background.

::

               3 calls in a row get no answer
    CLOSED ──────────────────────────────────────► OPEN ── probe after 1, 2, 4 … 30 s ──┐
      ▲                                             ▲  │                 no answer      │
      └──── an answer: the probe's, or a late one ──│──┘ ◄──────────────────────────────┘

A call got no answer when the tier could not be reached for any of its names (see
`TierUnavailableError`); a tier that is full or says no has answered. While the breaker is open
nobody waits for the tier. After Nygard, "Release It!" (2007), chapter 5.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import anyio

from tieredkv.observe.logs import Rarely

if TYPE_CHECKING:
    from tieredkv.errors import TieredKVError, TierError
    from tieredkv.tasks import Detached

__all__ = ["Health"]

_log: Final = logging.getLogger(__name__)

_FAILURES_IN_A_ROW: Final = 3
_FIRST_PROBE_S: Final = 1.0
_LONGEST_PROBE_S: Final = 30.0


class Health:
    """The health of one tier, as its calls show it.

    Attributes:
        failure: Why the last call failed; None if it did not.
        is_open: Whether the breaker is open: the tier is not to be asked.
        times_opened: How often the breaker has opened.
        probes: How many probes were sent.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], Coroutine[Any, Any, TieredKVError | None]],
        detached: Detached,
        *,
        first_probe_s: float = _FIRST_PROBE_S,
    ) -> None:
        """Set up for a tier that works.

        Args:
            name: The tier's name.
            probe: Asks the tier; returns None if it answers, else why not. Does not raise.
            detached: Where probing runs.
            first_probe_s: Seconds from opening to the first probe.
        """
        self.failure: TieredKVError | None = None
        self.is_open: bool = False
        self.times_opened: int = 0
        self.probes: int = 0
        self._name = name
        self._probe = probe
        self._detached = detached
        self._first_probe_s = first_probe_s
        self._failing = Rarely(_log)
        self._failures = 0
        self._is_closed = False
        self._scope: anyio.CancelScope | None = None  # of the probing that runs
        self._ended = anyio.Event()

    def succeeded(self, operation: str) -> None:
        """Note a call with answers alone."""
        self._failures = 0
        if self.failure is not None or self.is_open:
            where = {"tier": self._name, "operation": operation}
            _log.info("tier %s answers again: %s", self._name, operation, extra=where)
            self.failure = None
            self.is_open = False

    def failed(self, error: TierError, *, answered: bool) -> None:
        """Note a call that failed for some name, and whether the tier answered for any."""
        if self._is_closed:  # calls that were under way then end when they do
            return
        if self.failure is None:
            self._failing.log(
                "tier %s is failing: %s",
                self._name,
                error,
                tier=self._name,
                operation=error.operation,
            )
        self.failure = error
        if answered:
            self._failures = 0
            return
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW:
            self.open(error)

    def open(self, error: TieredKVError) -> None:
        """Open the breaker, and look in the background when it may be closed again."""
        self.failure = error
        if self.is_open:
            return
        self.is_open = True
        self.times_opened += 1
        _log.warning(
            "tier %s is not asked until it answers a probe: %s",
            self._name,
            error,
            extra={"tier": self._name},
        )
        if self._scope is None:
            self._scope = anyio.CancelScope()
            self._ended = anyio.Event()
            self._detached.spawn(self._keep_probing, self._scope)

    async def aclose(self) -> None:
        """Stop probing, for good."""
        self._is_closed = True
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()

    async def _keep_probing(self, scope: anyio.CancelScope) -> None:
        delay_s = self._first_probe_s
        try:
            with scope:
                while self.is_open:
                    # Not all processes at the same time.
                    await anyio.sleep(delay_s * random.uniform(0.75, 1.25))  # noqa: S311
                    if not self.is_open:  # a call that was under way has been answered
                        break
                    self.probes += 1
                    error = await self._probe()
                    if error is None:
                        self.succeeded("probe")
                    else:
                        self.failure = error
                    delay_s = min(2 * delay_s, _LONGEST_PROBE_S)
        finally:
            self._scope = None
            self._ended.set()
