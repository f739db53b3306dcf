"""Spans and metrics, as OpenTelemetry's SDK gets them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.store.stoppable import StoppableDisk
from tieredkv import TieredStore
from tieredkv.config import MiB
from tieredkv.observe.instruments import DURATION, INSTRUMENTS

pytestmark = pytest.mark.anyio


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Set a provider of traces, as a host does once in its life; return where spans end."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """Set a provider of metrics; return what reads them."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    yield reader
    provider.shutdown()


class Collected:
    """What a reader collects now: metric → points."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        data = reader.get_metrics_data()
        resources = () if data is None else data.resource_metrics
        self.scopes = [scope for resource in resources for scope in resource.scope_metrics]
        self.metrics = {metric.name: metric for scope in self.scopes for metric in scope.metrics}

    def value(self, name: str, **attributes: str) -> float:
        wanted = {f"tieredkv.{key}": value for key, value in attributes.items()}
        (point,) = [
            point for point in self.metrics[name].data.data_points if point.attributes == wanted
        ]
        assert isinstance(point, NumberDataPoint)
        return point.value


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_metrics_say_what_stats_say(reader: InMemoryMetricReader, store: TieredStore) -> None:
    await store.put_many([(name, bytes(MiB)) for name in "abcdef"])
    with await store.get_many("abcdxy"):
        stats = store.stats()
        seen = Collected(reader)
    assert seen.value("tieredkv.operations", tier="disk", operation="write", outcome="stored") == 6
    for outcome in ("hit", "miss"):
        told = seen.value("tieredkv.operations", tier="l1", operation="read", outcome=outcome)
        assert told == {"hit": stats.l1.hits, "miss": stats.l1.misses}[outcome]
    assert seen.value("tieredkv.io", tier="disk", operation="write") == 6 * (MiB + 64)
    assert seen.value("tieredkv.l1.removed", cause="room") == stats.l1.evicted > 0
    assert seen.value("tieredkv.l1.leases") == stats.l1.leases > 0
    assert seen.value("tieredkv.l1.used") == stats.l1.used_bytes
    assert seen.value("tieredkv.breaker.closed", tier="disk") == 1
    assert seen.metrics.keys() == {DURATION, *(instrument.name for instrument in INSTRUMENTS)}


async def test_durations_of_calls_by_outcome(
    reader: InMemoryMetricReader, store: TieredStore
) -> None:
    await store.put("a", b"1")
    await store.clear()
    with await store.get_many("abc", sizes=[1, 1, 1]):
        pass
    counts = {}
    for point in Collected(reader).metrics[DURATION].data.data_points:
        assert isinstance(point, HistogramDataPoint)
        where = dict(point.attributes or {})
        assert where.pop("tieredkv.tier") == "disk"
        counts[where["tieredkv.operation"], where["tieredkv.outcome"]] = point.count
    assert counts == {("write", "stored"): 1, ("read", "hit"): 1, ("read", "miss"): 1}


async def test_two_stores_of_a_process_are_told_apart(
    reader: InMemoryMetricReader, anyio_backend: object
) -> None:
    async with TieredStore(MiB) as one, TieredStore(MiB):
        await one.put("a", b"1")
        collected = Collected(reader)
    objects = {}
    for scope in collected.scopes:
        for metric in scope.metrics:
            if metric.name == "tieredkv.l1.objects":
                (point,) = metric.data.data_points
                assert isinstance(point, NumberDataPoint)
                objects[(scope.scope.attributes or {})["tieredkv.store"]] = point.value
    assert sorted(objects.values()) == [0, 1]


async def test_a_closed_store_has_no_metrics(
    reader: InMemoryMetricReader, anyio_backend: object
) -> None:
    async with TieredStore(MiB):
        assert Collected(reader).value("tieredkv.l1.objects") == 0
    assert not Collected(reader).metrics


async def test_a_load_is_traced_down_to_its_tiers(
    spans: InMemorySpanExporter, store: TieredStore
) -> None:
    with trace.get_tracer_provider().get_tracer("host").start_as_current_span("request"):
        await store.put("a", b"1")
        await store.clear()
        with await store.get_many("ab"):
            pass
    seen = named(spans)
    assert seen.keys() == {"request", "put", "get_many", "stat disk", "read disk", "write disk"}
    parents = {
        name: next(
            (
                n
                for n, of in seen.items()
                if span.parent and of.context.span_id == span.parent.span_id
            ),
            None,
        )
        for name, span in seen.items()
    }
    assert parents == {
        "request": None,
        "put": "request",
        "write disk": "put",
        "get_many": "request",
        "stat disk": "get_many",
        "read disk": "get_many",
    }
    assert seen["get_many"].attributes == {"tieredkv.keys": 2}
    assert seen["stat disk"].attributes == {
        "tieredkv.keys": 2,
        "tieredkv.tier": "disk",
        "tieredkv.operation": "stat",
        "tieredkv.outcome.hit": 1,
        "tieredkv.outcome.miss": 1,
    }


async def test_a_call_that_fails_as_a_whole_says_why(
    spans: InMemorySpanExporter, store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(requests: object) -> list[object]:
        raise RuntimeError("a secret")

    monkeypatch.setattr(store._parts().tiers[0].backend, "delete_many", fail)
    await store.delete("secret-key")
    span = named(spans)["delete disk"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "TierError"
    assert "secret" not in "".join(of.to_json() for of in spans.get_finished_spans())


async def test_a_hit_in_l1_has_no_span(spans: InMemorySpanExporter, store: TieredStore) -> None:
    await store.put("a", b"1")
    spans.clear()
    assert await store.get_bytes("a") == b"1"
    assert not spans.get_finished_spans()


async def test_a_write_that_outlives_its_put_belongs_to_it(
    spans: InMemorySpanExporter, store: TieredStore, disk: StoppableDisk
) -> None:
    with disk.stopped():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.put("a", b"1")
        await disk.entered()
    await store.flush()
    seen = named(spans)
    assert seen["write disk"].parent is not None
    assert seen["write disk"].parent.span_id == seen["put"].context.span_id


PROGRAM = """
import sys, anyio
from tieredkv import TieredStore

async def main():
    async with TieredStore("1MiB") as store:
        await store.put("a", b"1")
        await store.get_bytes("a")

anyio.run(main)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def test_without_a_host_that_uses_it_opentelemetry_is_not_imported() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


HOST = """
import anyio
from opentelemetry import metrics, trace
from tieredkv import TieredStore
import tieredkv.observe.telemetry as telemetry

async def main():
    async with TieredStore("1MiB") as store:
        await store.put("a", b"1")
        assert store._parts().telemetry._tracer is store._parts().telemetry._meter is None

anyio.run(main)
"""


def test_a_host_that_has_set_no_provider_gets_nothing() -> None:
    subprocess.run([sys.executable, "-c", HOST], check=True, timeout=60)


BEGUN = """
import sys, threading
from tieredkv.observe.telemetry import Telemetry

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "opentelemetry.trace.span":
            begun.set()
            going_on.wait(0.3)
            if "broken" in sys.argv:
                raise ImportError(name)

def imported():
    try:
        import opentelemetry.trace
    except ImportError:
        assert "broken" in sys.argv

begun, going_on = threading.Event(), threading.Event()
sys.meta_path.insert(0, Slow())
importing = threading.Thread(target=imported)
importing.start()
assert begun.wait(30)
assert Telemetry()._tracer is None
importing.join()
"""


@pytest.mark.parametrize("package", ["whole", "broken"])
def test_a_host_may_be_about_to_import_it_in_another_thread(package: str) -> None:
    subprocess.run([sys.executable, "-c", BEGUN, package], check=True, timeout=60)
