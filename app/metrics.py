"""What Prometheus reads from `/metrics`."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from app.record import STAGES, Record
from engine.device import DeviceHealth
from engine.stage import StageLoad
from engine.tally import BATCH_BOUNDS, ENCODER_CLIPS, batch_counter

MEDIA_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_RTFX = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_ENGINE = "vllm:"
"""How vLLM's own names begin."""
_BATCHES = frozenset({ENCODER_CLIPS, *(batch_counter(place) for place in range(len(BATCH_BOUNDS) + 1))})


class State(Protocol):
    """What is true at the moment of reading."""

    @property
    def ready(self) -> bool: ...

    @property
    def model(self) -> str | None:
        """The model that is loaded."""

    @property
    def device(self) -> DeviceHealth: ...

    @property
    def gauges(self) -> dict[str, tuple[str, float]]:
        """Name without prefix to its description and value."""


class Metrics:
    """The metrics of one app."""

    def __init__(self, state: State) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry, buckets=_SECONDS)
        self._requests = counter("tinglu_requests", "Requests answered", ["route", "status"])
        self._seconds = histogram(
            "tinglu_request_seconds", "From a request's first byte to its answer's last", ["route"]
        )
        self._audio = counter("tinglu_audio_seconds", "Sound of the recordings transcribed")
        self._rtfx = histogram("tinglu_request_rtfx", "Seconds of sound a second, by request", buckets=_RTFX)
        self._stage = histogram("tinglu_stage_seconds", "Stay of a request in a stage", ["stage"])
        self._queue = histogram("tinglu_queue_seconds", "Wait of a request until it is worked on")
        self._rejected = counter("tinglu_rejected", "Requests refused, by the code of the error", ["reason"])
        self._cancelled = counter("tinglu_cancelled", "Requests whose client left")
        self._under_way: set[Record] = set()
        self._registry.register(_Momentary(state, self._under_way))

    @contextmanager
    def watching(self, record: Record) -> Iterator[None]:
        """Show for as long as the context lasts where a request is."""
        self._under_way.add(record)
        try:
            yield
        finally:
            self._under_way.discard(record)

    def observe(self, record: Record, status: int) -> None:
        """Count a request that is over."""
        self._requests.labels(record.route, status).inc()
        self._seconds.labels(record.route).observe(record.seconds)
        if record.cancelled:
            self._cancelled.inc()
        elif record.code is not None:
            self._rejected.labels(record.code).inc()
        elif record.audio_seconds is not None:
            self._audio.inc(record.audio_seconds)
            if record.audio_seconds and record.processing_seconds:
                self._rtfx.observe(record.audio_seconds / record.processing_seconds)
        if record.stays:
            self._queue.observe(record.queue_seconds)
        for stay in record.works:
            self._stage.labels(stay.stage).observe(stay.seconds)

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)


class _Momentary(Collector):
    """Reads the state when somebody asks."""

    def __init__(self, state: State, under_way: Set[Record]) -> None:
        self._state = state
        self._under_way = under_way

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("tinglu_ready", "Whether requests are served", value=float(self._state.ready))
        for name, (what, value) in self._state.gauges.items():
            yield GaugeMetricFamily(f"tinglu_{name}", what, value=value)
        yield self._stages()
        device = self._state.device
        yield CounterMetricFamily("tinglu_engine_restarts", "Restarts of the device process", value=device.restarts)
        busy = CounterMetricFamily(
            "tinglu_device_busy_seconds", "Time that the device spent in a stage", labels=["stage"]
        )
        calls = GaugeMetricFamily("tinglu_device_calls", "Calls that a stage works on", labels=["stage"])
        counts = CounterMetricFamily("tinglu_device_counts", "What a stage counts itself", labels=["stage", "of"])
        shown = GaugeMetricFamily("tinglu_device_shows", "What a stage shows of the moment", labels=["stage", "of"])
        for name, load in device.stages.items():
            busy.add_metric([name], load.busy_seconds)
            calls.add_metric([name], load.calls)
            for of, value in load.counters.items():
                if of not in _BATCHES and not of.startswith(_ENGINE):
                    counts.add_metric([name, of], value)
            for of, value in load.gauges.items():
                if not of.startswith(_ENGINE):
                    shown.add_metric([name, of], value)
        yield from (busy, calls, counts, shown)
        yield from _batches(device.stages)
        if self._state.model is not None:
            yield from _engine(device.stages, self._state.model)

    def _stages(self) -> Metric:
        where = Counts(name for record in list(self._under_way) for name in record.within)
        requests = GaugeMetricFamily(
            "tinglu_stage_requests", "Requests that are in a stage; the queue is for decoders", labels=["stage"]
        )
        for name in STAGES:
            requests.add_metric([name], where[name])
        return requests

    def describe(self) -> Iterator[Metric]:
        return iter(())


def _batches(stages: Mapping[str, StageLoad]) -> Iterator[Metric]:
    """The sizes of the encoder's batches, of the stages that count them."""
    sizes = HistogramMetricFamily("tinglu_encoder_batch_size", "Clips that the encoder took together", labels=["stage"])
    for name, load in stages.items():
        if ENCODER_CLIPS in load.counters:
            counts = [load.counters[batch_counter(place)] for place in range(len(BATCH_BOUNDS) + 1)]
            bounds = [*(str(float(bound)) for bound in BATCH_BOUNDS), "+Inf"]
            sizes.add_metric([name], list(zip(bounds, accumulate(counts), strict=True)), load.counters[ENCODER_CLIPS])
    yield sizes


def _engine(stages: Mapping[str, StageLoad], model: str) -> Iterator[Metric]:
    """vLLM's figures under its own names and labels, so that what reads vLLM's reads these."""
    for load in stages.values():
        for family, values in ((GaugeMetricFamily, load.gauges), (CounterMetricFamily, load.counters)):
            for name, value in values.items():
                if name.startswith(_ENGINE):
                    metric = family(name, "As vLLM's metric of this name", labels=["model_name", "engine"])
                    metric.add_metric([model, "0"], value)
                    yield metric
