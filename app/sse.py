"""Server-sent events (WHATWG HTML, section 9.2) of work that is still going on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

from fastapi import Response
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from app.disconnect import unless_gone
from app.errors import Refusal, refusal_for
from app.formats.format import json_text

PING_SECONDS = 15.0
"""Proxies close connections that are silent for longer; half a minute is the shortest limit in common use."""

_PING = b": ping\n\n"
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Events = AsyncGenerator[Mapping[str, Any], None]


class EventStream(Response):
    """Sends events as they come, and closes their generator, and then `holding`, when the client leaves.

    The status waits for the first event, as long as a client waits for a ping: what is refused until then is refused
    with its status. Later it is an `error` event with OpenAI's error object, and the stream ends.
    """

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(self, events: Events, *, holding: AsyncExitStack, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._events = events
        self._holding = holding
        self._ping_seconds = ping_seconds
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request.

        Raises:
            ClientDisconnect: the client left before the first byte; later that is no error.
        """
        try:
            await unless_gone(Request(scope, receive), self._run(scope, receive, send))
        except ClientDisconnect:
            if not self._started:
                raise

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._holding, aclosing(self._frames()) as frames:
                async for frame in frames:
                    await self._start(send)
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
        except Exception as error:
            refusal = refusal_for(error)
            if not self._started:
                await refusal.response()(scope, receive, send)
                return
            await send({"type": "http.response.body", "body": _error(refusal), "more_body": True})
        await self._start(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, send: Send) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        """The events as bytes, and a ping whenever none comes for a while.

        A task runs ahead and fills a queue, so that a client that reads slowly does not keep the work waiting.
        """
        ready: asyncio.Queue[bytes | None] = asyncio.Queue()
        working = asyncio.create_task(self._work(ready))
        try:
            while True:
                try:
                    async with asyncio.timeout(self._ping_seconds):
                        frame = await ready.get()
                except TimeoutError:
                    frame = _PING
                if frame is None:
                    break
                yield frame
            working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _work(self, ready: asyncio.Queue[bytes | None]) -> None:
        """Lets go of the upload as soon as the events are over, even if the client reads them slowly or never."""
        try:
            async with self._holding, aclosing(self._events) as events:
                async for event in events:
                    ready.put_nowait(_frame(event))
        finally:
            ready.put_nowait(None)


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"data: {json_text(event)}\n\n".encode()


def _error(refusal: Refusal) -> bytes:
    return b"event: error\n" + _frame(refusal.body)
