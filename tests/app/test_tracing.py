from __future__ import annotations

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.record import Record, Stay
from app.tracing import NoTracer, OtelTracer, tracer_to

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spans(record: Record) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(exporter)
    tracer.export(record, 200)
    tracer.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_span_a_request_and_one_a_stage() -> None:
    record = Record("id-1", "POST", route="/asr", audio_seconds=11.0)
    record.stays = [Stay(name, record.began_ns + 10, 0.5) for name in ("queue", "decode", "vad", "recognise")]
    found = spans(record)
    request = found["POST /asr"]
    assert set(found) == {"POST /asr", "queue", "decode", "vad", "recognise"}
    assert request.attributes is not None
    assert request.attributes["tinglu.audio_seconds"] == 11.0
    assert request.attributes["http.response.status_code"] == 200
    assert request.context is not None
    for name in ("decode", "vad", "recognise"):
        child = found[name]
        assert child.parent is not None
        assert child.parent.span_id == request.context.span_id
        assert child.start_time == record.began_ns + 10
        assert child.end_time == record.began_ns + 10 + 500_000_000


def test_the_trace_of_the_client_goes_on() -> None:
    request = spans(Record("id-1", "POST", traceparent=PARENT))["POST unknown"]
    assert request.parent is not None
    assert f"{request.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert spans(Record("id-1", "POST", traceparent="nonsense"))["POST unknown"].parent is None


def test_off_by_default() -> None:
    assert isinstance(tracer_to(None), NoTracer)


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ValueError, match=r"tinglu\[otel\]"):
        tracer_to("http://localhost:4318")


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


async def test_traces_reach_a_collector(build: Any, collector: tuple[str, list[bytes]]) -> None:
    endpoint, received = collector
    async with build(otlp_endpoint=endpoint) as house:
        assert (await house.client.post("/asr", files=house.recording())).status_code == 200
    body = b"".join(received)
    for name in (b"POST /asr", b"vad", b"recognise", b"tinglu.audio_seconds"):
        assert name in body
