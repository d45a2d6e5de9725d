"""OpenTelemetry traces: a span a request, and one for each stay in a stage. Needs the extra `otel`."""

from __future__ import annotations

from typing import Any, Protocol, Self

from app.record import Record


class Tracer(Protocol):
    """Where requests go that are over."""

    def export(self, record: Record, status: int) -> None: ...

    def close(self) -> None:
        """Send what has not been sent."""


class NoTracer:
    """Nobody asked for traces."""

    def export(self, record: Record, status: int) -> None: ...

    def close(self) -> None: ...


class OtelTracer:
    """Sends spans after the fact, from what was noted: nothing of it is in the way of a request."""

    def __init__(self, exporter: Any) -> None:
        """`exporter` is a `SpanExporter`; spans go out in batches, from a thread of its own."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(resource=Resource.create({"service.name": "tinglu"}), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tinglu")

    @classmethod
    def to(cls, endpoint: str) -> Self:
        """A tracer that sends OTLP over HTTP to a collector such as `http://localhost:4318`.

        Raises:
            ValueError: the extra `otel` is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise ValueError("traces need the extra `otel`: pip install 'tinglu[otel]'") from error
        return cls(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))

    def export(self, record: Record, status: int) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": record.traceparent} if record.traceparent else {}
        attributes: dict[str, Any] = {
            "http.request.method": record.method,
            "http.route": record.route,
            "http.response.status_code": status,
            "tinglu.request_id": record.request_id,
        }
        if record.audio_seconds is not None:
            attributes["tinglu.audio_seconds"] = record.audio_seconds
        span = self._tracer.start_span(
            f"{record.method} {record.route}",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=record.began_ns,
        )
        inside = set_span_in_context(span)
        for stay in record.stays:
            child = self._tracer.start_span(stay.stage, context=inside, start_time=stay.began_ns)
            child.end(stay.began_ns + round(stay.seconds * 1e9))
        span.end(record.began_ns + round(record.seconds * 1e9))

    def close(self) -> None:
        self._provider.shutdown()


def tracer_to(endpoint: str | None) -> Tracer:
    """A tracer for the setting.

    Raises:
        ValueError: the extra `otel` is not installed.
    """
    return OtelTracer.to(endpoint) if endpoint else NoTracer()
