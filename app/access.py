"""Around every request: its id, its record, its line in the log, headers for browsers, and no traceback to anybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import CLIENT_GONE, Refusal, internal_error
from app.metrics import Metrics
from app.record import Record, recording, request_id
from app.tracing import Tracer

logger = logging.getLogger("tinglu.access")

_LONGEST_PATH = 200
_QUIET = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
"""Asked every few seconds, by machines."""

_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
_DOCUMENTATION = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src 'self' 'unsafe-inline' https://cdn.jsdelivr.net; img-src 'self' data: https://fastapi.tiangolo.com; "
    "frame-ancestors 'none'"
)


class Ledger:
    """Where requests are entered when they are over: log, metrics, traces. Knows how many are under way."""

    def __init__(self, metrics: Metrics, tracer: Tracer) -> None:
        self._metrics = metrics
        self._tracer = tracer
        self.under_way = 0
        """Requests that must not be interrupted: all but questions after the server's health."""

    @contextmanager
    def open(self, record: Record) -> Iterator[Record]:
        """A request for as long as the context lasts. It must be closed with `enter` inside."""
        counts = record.path not in _QUIET
        self.under_way += counts
        try:
            with recording(record), self._metrics.watching(record):
                yield record
        finally:
            self.under_way -= counts

    def enter(self, record: Record, status: int) -> None:
        """The request is over."""
        self._metrics.observe(record, status)
        self._tracer.export(record, status)
        seconds = {
            "audio": record.audio_seconds,
            "queue": record.queue_seconds if record.stays else None,
            "processing": record.processing_seconds if record.stays else None,
            "total": record.seconds,
        }
        fields: dict[str, object] = {f"{name}_seconds": round(s, 3) for name, s in seconds.items() if s is not None}
        if record.code is not None:
            fields["code"] = record.code
        path = quote(record.path)[:_LONGEST_PATH]  # as it came it could hold line breaks
        logger.log(
            logging.DEBUG if record.path in _QUIET else logging.INFO,
            "%s %s %d %s id=%s",
            record.method,
            path,
            status,
            " ".join(f"{name}={value}" for name, value in fields.items()),
            record.request_id,
            extra={"method": record.method, "path": path, "status": status, "request_id": record.request_id, **fields},
        )

    def close(self) -> None:
        self._tracer.close()


def record_of(scope: Scope) -> Record:
    """A new record for an HTTP request, or for a round on a WebSocket, which has the id of its socket."""
    headers = Headers(scope=scope)
    return Record(
        scope.get("state", {}).get("request_id") or request_id(headers.get("x-request-id")),
        method=scope.get("method", "WS"),
        path=scope["path"],
        traceparent=headers.get("traceparent"),
    )


class Access:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, *, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message, record)
            await send(message)

        with self._ledger.open(record_of(scope)) as record:
            try:
                await self._app(scope, receive, answer)
            except ClientDisconnect:
                status = CLIENT_GONE
            except asyncio.CancelledError:  # the server ends, and this one did not get ready in time
                record.cancelled = True
                if status:
                    raise
                await _shutting_down().response()(scope, receive, answer)
            except Exception as error:
                refusal = internal_error(error)
                if status:
                    raise
                await refusal.response()(scope, receive, answer)
            finally:
                route = scope.get("route")
                record.route = getattr(route, "path", "unknown")
                record.cancelled |= status == CLIENT_GONE
                self._ledger.enter(record, status)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)

        async def answer(message: Message) -> None:
            if message["type"] in ("websocket.accept", "websocket.http.response.start"):
                headers = MutableHeaders(raw=list(message.get("headers", [])))
                headers["x-request-id"] = record.request_id
                message = {**message, "headers": headers.raw}
            if message["type"] == "websocket.http.response.start":
                record.route = "/ws"
                self._ledger.enter(record, message["status"])
            await send(message)

        scope["state"] = {**scope.get("state", {}), "request_id": record.request_id}
        with recording(record):
            await self._app(scope, receive, answer)


def _add_headers(message: Message, record: Record) -> None:
    headers = MutableHeaders(raw=list(message.get("headers", [])))
    headers["x-request-id"] = record.request_id
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("content-security-policy", _DOCUMENTATION if record.path == "/docs" else _NOTHING)
    message["headers"] = headers.raw


def _shutting_down() -> Refusal:
    return Refusal(503, "shutting_down", "The server is shutting down.", retry_after=5)
