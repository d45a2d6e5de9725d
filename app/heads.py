"""Below ASGI: how long the head of a request may take and how large it may be, which uvicorn leaves open."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.errors import Refusal

MAX_HEAD_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0
"""What is still on its way is thrown away for a moment: closing on it would tear the answer away from the client."""


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol over httptools, with bounds on heads, and with our errors for what is no HTTP.

    A connection is closed when the head of a request has not come within `head_seconds`, whether nothing was sent or
    byte after byte. The time begins with the connection, and on one that is kept with the first byte of the next
    request. Only who has begun a request is told, as others may take the answer for that of their first one. Heads and
    trailers may have 64 kB.
    """

    def __init__(self, *args: Any, head_seconds: float, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_seconds = head_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = self._in_body = self._refused = False
        self._kept = 0
        """Bytes that came since the parser has last handed anything on, and that it may have to keep."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if not self._in_body:
            self._wait_for_head()
        self._kept += len(data)
        super().data_received(data)
        if self._kept > MAX_HEAD_BYTES:
            self._refuse(
                Refusal(431, "request_head_too_large", f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._in_head, self._in_body, self._kept = False, True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._kept = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._kept = False, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Said by uvicorn of what it cannot parse."""
        self._refuse(Refusal(400, "invalid_request", msg))

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._head_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._answering:  # a client that sends the next request ahead; the answer to this one comes first
            self._wait_for_head()
        elif not self._in_head:
            self.transport.close()
        else:
            self._refuse(
                Refusal(408, "request_too_slow", f"The head of a request must come within {self._head_seconds:g} s.")
            )

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, refusal: Refusal) -> None:
        """Answer below the app, unless an answer of the app is on its way, and close the connection."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_waiting()
        if self._answering:
            self.transport.close()
        else:
            response = refusal.response({"connection": "close"})
            lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}".encode()]
            lines += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
            self.transport.write_eof()
            self.loop.call_later(_LINGER_SECONDS, self.transport.close)
