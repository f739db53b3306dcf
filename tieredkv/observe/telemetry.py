"""OpenTelemetry: spans and metrics of one store, for hosts that have set providers.

OpenTelemetry is not imported unless the host does: one that has set a provider has imported it.
Without one there are no spans and no instruments, and a call costs an `if`.

Keys are only counted: neither spans nor metrics say which they are.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.trace import Span, Tracer

    from tieredkv.observe.instruments import Instrument
    from tieredkv.observe.stats import StoreStats

__all__ = ["Telemetry"]

_SCOPE: Final = "tieredkv"
_NO_SPAN: Final[AbstractContextManager[None]] = nullcontext()


class Telemetry:
    """Tells OpenTelemetry of one store, from the moment on at which it is made.

    The providers are those that are set then.
    """

    def __init__(self) -> None:
        self._figures: Callable[[], StoreStats] | None = None
        # So that two stores of a process can be told apart.
        store = {"tieredkv.store": os.urandom(4).hex()}
        traces, metrics = _provider("trace"), _provider("metrics")
        self._tracer: Tracer | None = traces and traces.get_tracer(_SCOPE, attributes=store)
        self._meter: Meter | None = metrics and metrics.get_meter(_SCOPE, attributes=store)
        if self._meter is not None:
            from tieredkv.observe.instruments import (  # noqa: PLC0415 - an optional extra
                DURATION,
                INSTRUMENTS,
            )

            self._instruments: Sequence[Instrument] = INSTRUMENTS
            self._durations = self._meter.create_histogram(
                DURATION, unit="s", description="Calls of tiers, by what became of their keys."
            )

    def offer(self, figures: Callable[[], StoreStats]) -> None:
        """Offer the metrics.

        Args:
            figures: Returns the store's figures; called in the threads of metric readers.
        """
        if self._meter is None:
            return
        self._figures = figures
        for instrument in self._instruments:
            create = getattr(self._meter, f"create_observable_{instrument.kind}")
            create(
                instrument.name,
                [partial(self._read, instrument)],
                unit=instrument.unit,
                description=instrument.description,
            )

    def close(self) -> None:
        """Offer no figures any more; instruments cannot be taken back."""
        self._figures = None

    @property
    def traces(self) -> bool:
        """Whether anybody wants spans."""
        return self._tracer is not None

    def span(self, name: str, keys: int) -> AbstractContextManager[Span | None]:
        """Return a context in which a span is current, or None if nobody wants spans.

        Args:
            name: What is done; one of few.
            keys: With how many keys.
        """
        if self._tracer is None:
            return _NO_SPAN
        return self._tracer.start_as_current_span(name, attributes={"tieredkv.keys": keys})

    def answered(
        self,
        span: Span | None,
        tier: str,
        operation: str,
        outcomes: Mapping[str, int],
        *,
        duration_s: float,
        error: Exception | None,
    ) -> None:
        """Tell how a call of a tier ended.

        Args:
            span: Its span.
            tier: The tier.
            operation: What it was asked to do.
            outcomes: Outcome → number of keys.
            duration_s: How long it took.
            error: Why it failed, if it did as a whole.
        """
        where = {"tieredkv.tier": tier, "tieredkv.operation": operation}
        if self._meter is not None:
            for outcome in outcomes:
                self._durations.record(duration_s, {**where, "tieredkv.outcome": str(outcome)})
        if span is not None:
            counted = {f"tieredkv.outcome.{outcome}": n for outcome, n in outcomes.items()}
            span.set_attributes({**where, **counted})
            if error is not None:
                span.set_attribute("error.type", type(error).__qualname__)
                trace = sys.modules["opentelemetry.trace"]
                span.set_status(trace.StatusCode.ERROR)

    def _read(self, instrument: Instrument, _options: CallbackOptions) -> list[Observation]:
        figures = self._figures
        if figures is None:
            return []
        observation = sys.modules["opentelemetry.metrics"].Observation
        return [
            observation(value, attributes) for value, attributes in instrument.points(figures())
        ]


def _provider(signal: str) -> Any:
    """Return the provider that the host has set for traces or metrics, or None."""
    name = f"opentelemetry.{signal}"
    if name not in sys.modules:
        return None
    try:
        api = importlib.import_module(name)  # waits for a thread that has only begun to import it
    except ImportError:  # that thread is told
        return None
    get = api.get_tracer_provider if signal == "trace" else api.get_meter_provider
    provider = get()
    # Those of the API itself stand in for one that is not there.
    is_stand_in = type(provider).__module__.startswith(f"opentelemetry.{signal}")
    return None if is_stand_in else provider
