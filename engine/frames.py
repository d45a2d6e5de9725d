"""The app's end of the socket to a device process: it never waits, however long a message is.

A message is its size in four bytes, big-endian, and its pickle, as `multiprocessing.connection` has it there.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from typing import Any, cast

_PREFIX_BYTES = 4


class Frames(asyncio.Protocol):
    """Messages to and from a device; what is sent before the socket is connected waits for it."""

    def __init__(self, receive: Callable[[Any], None], over: Callable[[], None]) -> None:
        """`receive` gets every message, `over` is called once, when the other end is closed."""
        self._receive = receive
        self._over = over
        self._buffer = bytearray()
        self._waiting: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self._closed = False

    async def connect(self, end: socket.socket) -> None:
        """Take over a connected socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def send(self, message: Any) -> None:
        """Raises BrokenPipeError if nobody will read it."""
        if self._closed:
            raise BrokenPipeError("the device process is not running")
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        frame = len(data).to_bytes(_PREFIX_BYTES, "big") + data
        if self._transport is None:
            self._waiting.append(frame)
        else:
            self._transport.write(frame)

    def close(self) -> None:
        """Hang up, without sending what still waits."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        if self._closed:
            self._transport.abort()
            return
        self._transport.writelines(self._waiting)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        begin = 0
        while (end := self._end(begin)) is not None:
            message = pickle.loads(memoryview(self._buffer)[begin + _PREFIX_BYTES : end])
            begin = end
            self._receive(message)
        del self._buffer[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._over()

    def _end(self, begin: int) -> int | None:
        """Where the message that begins there ends, None while it is not complete."""
        start = begin + _PREFIX_BYTES
        if len(self._buffer) < start:
            return None
        end = start + int.from_bytes(self._buffer[begin:start], "big")
        return end if end <= len(self._buffer) else None
