"""The limit on request bodies, below everything that parses them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import Refusal


class BodyLimit:
    """ASGI middleware that refuses bodies above a size: by their Content-Length, else as soon as they pass it."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _content_length(scope) > self._max_bytes:
            await self._refusal().response()(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._refusal()
            return message

        await self._app(scope, counted, send)

    def _refusal(self) -> Refusal:
        return Refusal(
            413, "request_too_large", f"The request is larger than the {self._max_bytes} bytes that this server takes."
        )


def _content_length(scope: Scope) -> int:
    """0 where there is none; the server in front has checked that it is a number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
