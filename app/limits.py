"""The limits on request bodies, below everything that parses them: their size, their number, their pace."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import Refusal

_LINGER_SECONDS = 2.0
_RETRY_UPLOAD_SECONDS = 5
_SEND_SECONDS = 60.0
"""A client that reads nothing of its answer for this long has left."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """A body may have `max_bytes`, and take `grace_seconds` and the time that it needs at `min_bytes_per_second`."""

    max_bytes: int
    max_uploads: int
    grace_seconds: float
    min_bytes_per_second: int


class Uploads:
    """The bodies that are arriving."""

    def __init__(self, limits: UploadLimits) -> None:
        self.limits = limits
        self.count = 0

    def enter(self) -> None:
        """Raises:
        Refusal: 503, there are too many.
        """
        if self.count >= self.limits.max_uploads:
            raise Refusal(
                503,
                "too_many_uploads",
                f"{self.count} uploads are arriving, and no more than {self.limits.max_uploads} may at a time.",
                retry_after=_RETRY_UPLOAD_SECONDS,
            )
        self.count += 1

    def leave(self) -> None:
        self.count -= 1


class BodyLimit:
    """ASGI middleware that counts bodies as they arrive, and refuses what is too large, too slow or one too many.

    Whatever is answered before the body has arrived closes the connection: a client that sends without end would keep
    it. What is still on its way is read and thrown away for a moment, or the answer would be lost in a reset.
    """

    def __init__(self, app: ASGIApp, *, uploads: Uploads) -> None:
        self._app = app
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(self._uploads, scope, receive, send)
        try:
            if body.length > self._uploads.limits.max_bytes:
                refusal = body.too_large(f"The request has {body.length} bytes")
                await refusal.response()(scope, body.receive, body.send)
            else:
                await self._app(scope, body.receive, body.send)
        finally:
            body.arrived()


class _Body:
    """One request: its body on the way in, its answer on the way out."""

    def __init__(self, uploads: Uploads, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._uploads = uploads
        self._limits = uploads.limits
        self._receive = receive
        self._send = send
        self._arriving = False
        self._received = 0
        self._began = 0.0
        self.length = _length(headers)
        self._complete = self.length == 0 and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        if not self._arriving:
            self._uploads.enter()
            self._arriving, self._began = True, time.monotonic()
        due = self._limits.grace_seconds + self._received / self._limits.min_bytes_per_second
        try:
            async with asyncio.timeout(self._began + due - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise self._too_slow(time.monotonic() - self._began) from None
        self._received += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._complete = True
            self.arrived()
        if self._received > self._limits.max_bytes:
            raise self.too_large(f"The request has more than {self._limits.max_bytes} bytes")
        return message

    async def send(self, message: Message) -> None:
        if self._complete:
            await self._sent(message)
        elif message["type"] == "http.response.start":
            headers = [*message.get("headers", []), (b"connection", b"close")]
            await self._sent({**message, "headers": headers})
        elif message.get("more_body", False):
            await self._sent(message)
        else:
            await self._sent({**message, "more_body": True})
            await self._linger()
            await self._sent({"type": "http.response.body", "body": b"", "more_body": False})

    def arrived(self) -> None:
        """Nothing more is read."""
        if self._arriving:
            self._arriving = False
            self._uploads.leave()

    def too_large(self, what: str) -> Refusal:
        return Refusal(413, "request_too_large", f"{what}; this server takes at most {self._limits.max_bytes}.")

    def _too_slow(self, seconds: float) -> Refusal:
        return Refusal(
            408,
            "upload_too_slow",
            f"{self._received} bytes came in {seconds:.0f} s; this server waits {self._limits.grace_seconds:g} s, and "
            f"then for {self._limits.min_bytes_per_second} bytes a second.",
        )

    async def _sent(self, message: Message) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnect from None

    async def _linger(self) -> None:
        self.arrived()
        more: Mapping[str, object] = {"more_body": True}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while more.get("more_body", False):
                    more = await self._receive()


def _length(headers: Headers) -> int:
    """0 where none is given; the server in front has checked that it is a number."""
    return int(headers.get("content-length", 0))
