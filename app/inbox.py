"""Reading ahead on a WebSocket, so that a client that leaves is noticed while its recording is transcribed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import WebSocket
from starlette.requests import ClientDisconnect

Frame = str | bytes

_FRAME_OVERHEAD_BYTES = 100


class Inbox:
    """The frames of a socket in order. Beyond `max_bytes` of unread frames the client is not read any further."""

    def __init__(self, socket: WebSocket, *, max_bytes: int) -> None:
        self._socket = socket
        self._max_bytes = max_bytes
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._left = asyncio.Event()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read in the background for as long as the context lasts."""
        reader = asyncio.create_task(self._read())
        try:
            yield
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def next(self) -> Frame:
        """The next frame. Cancelling the call loses none.

        Raises:
            ClientDisconnect: there will be none.
        """
        while not self._frames:
            if self._left.is_set():
                raise ClientDisconnect
            await self._change()
        frame = self._frames.popleft()
        self._bytes -= len(frame) + _FRAME_OVERHEAD_BYTES
        self._changed.set()
        return frame

    async def left(self) -> None:
        """Wait until the client has closed the socket, or the connection is lost."""
        await self._left.wait()

    async def _read(self) -> None:
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                self._put(message.get("bytes") or b"" if text is None else text)
                while self._bytes > self._max_bytes:
                    await self._change()
        finally:
            self._left.set()
            self._changed.set()

    def _put(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._bytes += len(frame) + _FRAME_OVERHEAD_BYTES
        self._changed.set()

    async def _change(self) -> None:
        """Wait for a frame to come or go; at most one side waits at a time."""
        self._changed.clear()
        await self._changed.wait()
