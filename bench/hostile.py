"""Clients that a server on an open network meets: broken, malicious, slow, and those that leave."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import random
import struct
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import websockets

_DOOR = "/v1/audio/transcriptions"
_HEAD_BYTES = 200_000
_NESTED = 200
_FLOOD_FRAMES = 2000
_FRAME_BYTES = 17 << 20
"""More than a frame may have."""
_ANSWER_SECONDS = 120.0

Kind = Callable[[], Awaitable[str]]
"""Sends one request and tells what came of it: the status, or a word."""


class Hostile:
    """Requests that must harm nobody. `chance` decides on their details."""

    def __init__(self, client: httpx.AsyncClient, url: str, recordings: Sequence[bytes], chance: random.Random) -> None:
        self._client = client
        self._host, self._port = url.removeprefix("http://").split(":")
        self._socket_url = url.replace("http", "ws") + "/ws"
        self._recordings = recordings
        self._chance = chance
        self._bomb = vast_index()
        self._file = _form(recordings[0])

    def kinds(self) -> dict[str, Kind]:
        """By name; some refused, some left by their client."""
        nested = _nested()
        return {
            "random bytes": lambda: self._post(self._chance.randbytes(self._chance.randrange(100_000))),
            "no bytes": lambda: self._post(b""),
            "header without sound": lambda: self._post(self._recordings[0][:44]),
            "vast index": lambda: self._post(self._bomb),
            "no numbers": lambda: self._post(not_numbers()),
            "bad field": lambda: self._post(b"x", _DOOR, response_format="docx"),
            "many fields": lambda: self._post(b"x", **{f"field{number}": "x" for number in range(100)}),
            "wrong media type": lambda: self._send(self._recordings[0], "application/json"),
            "no boundary": lambda: self._send(self._file, "multipart/form-data"),
            "nested forms": lambda: self._send(nested, "multipart/form-data; boundary=b0"),
            "zipped body": lambda: self._send(gzip.compress(self._file), _MULTIPART, **{"content-encoding": "gzip"}),
            "huge head": self._huge_head,
            "no HTTP": lambda: self._raw(self._chance.randbytes(2000) + b"\r\n\r\n"),
            "slow body": self._slow_body,
            "half a body": self._half_a_body,
            "left": lambda: self._leave("/asr"),
            "left the stream": lambda: self._leave(_DOOR, stream="true"),
            "left the socket": self._left_socket,
            "socket without START": lambda: self._talk([b"x" * 999], 1),
            "socket of odd bytes": lambda: self._talk(["START", *(b"x" * n for n in range(1, 200, 2)), "STOP"], 3),
            "socket of noise": lambda: self._talk(["\0" * 100, "LANGUAGE:xx", "SPK:maybe", "START", "STOP"], 3),
            "flooded socket": self._flood,
            "huge frame": lambda: self._talk(["START", bytes(_FRAME_BYTES)], 3),
        }

    async def _post(self, content: bytes, path: str = "/asr", **fields: str) -> str:
        return str((await self._client.post(path, files={"file": content}, data=fields)).status_code)

    async def _send(self, body: bytes, media_type: str, **headers: str) -> str:
        answer = await self._client.post("/asr", content=body, headers={"content-type": media_type, **headers})
        return str(answer.status_code)

    async def _leave(self, path: str, **fields: str) -> str:
        """Gone after at most a fifth of a second."""
        files = {"file": self._chance.choice(self._recordings)}
        try:
            await self._client.post(path, files=files, data=fields, timeout=self._chance.random() / 5)
        except httpx.TimeoutException:
            return "left"
        return "done before"

    async def _huge_head(self) -> str:
        return await self._raw(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * _HEAD_BYTES + b"\r\n\r\n")

    async def _raw(self, data: bytes) -> str:
        """The status that comes back for bytes on a connection of their own."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(data)
            await writer.drain()
            head = await asyncio.wait_for(reader.read(1000), _ANSWER_SECONDS)
        except ConnectionError:
            head = b""
        finally:
            await _closed(writer)
        return head[9:12].decode("ascii", "replace") if head else "closed"

    async def _slow_body(self) -> str:
        """A hundred bytes every tenth of a second, until the server has enough of it."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(_head(1_000_000) + self._file[:1000])
            answer = asyncio.create_task(reader.read(1000))
            while not answer.done():
                writer.write(bytes(100))
                await asyncio.wait([answer], timeout=0.1)
            return answer.result()[9:12].decode() or "closed"
        except ConnectionError:
            return "closed"
        finally:
            await _closed(writer)

    async def _half_a_body(self) -> str:
        """Announces a megabyte and leaves after a part of it."""
        _, writer = await asyncio.open_connection(self._host, self._port)
        writer.write(_head(1_000_000) + bytes(self._chance.randrange(100_000)))
        await _closed(writer)
        return "left"

    async def _talk(self, frames: Sequence[str | bytes], answers: int) -> str:
        """The last of so many answers to frames on a WebSocket, or the code that it was closed with."""
        last = "silent"
        async with websockets.connect(self._socket_url) as socket:
            try:
                for frame in frames:
                    await socket.send(frame)
                for _ in range(answers):
                    last = _event(str(await asyncio.wait_for(socket.recv(), 5)))
            except websockets.ConnectionClosed:
                return f"closed {socket.close_code}"
            except TimeoutError:
                return last
        return last

    async def _left_socket(self) -> str:
        async with websockets.connect(self._socket_url) as socket:
            await socket.send("START")
            await socket.send(self._chance.choice(self._recordings)[44:])
            await socket.send("STOP")
            await asyncio.sleep(self._chance.random() / 5)
            socket.transport.abort()
        return "left"

    async def _flood(self) -> str:
        """Sends without reading, and leaves."""
        async with websockets.connect(self._socket_url) as socket:
            with contextlib.suppress(websockets.ConnectionClosed):
                for number in range(_FLOOD_FRAMES):
                    await socket.send("START" if number % 2 == 0 else b"xyz")
            socket.transport.abort()
        return "left"


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


_BOUNDARY = "b-9e1c"
_MULTIPART = f"multipart/form-data; boundary={_BOUNDARY}"


def _head(length: int) -> bytes:
    lines = ("POST /asr HTTP/1.1", "Host: x", f"Content-Type: {_MULTIPART}", f"Content-Length: {length}", "", "")
    return "\r\n".join(lines).encode()


def _form(content: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return head.encode() + content + f"\r\n--{_BOUNDARY}--\r\n".encode()


def _nested() -> bytes:
    """A form in a form in a form ..."""
    body = b"x"
    for level in reversed(range(_NESTED)):
        head = f'--b{level}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: '
        inner = f"multipart/mixed; boundary=b{level + 1}\r\n\r\n"
        body = head.encode() + inner.encode() + body + f"\r\n--b{level}--\r\n".encode()
    return body


def _event(message: str) -> str:
    """A short word for an answer on a WebSocket."""
    for name in ("error", "started", "stopped"):
        if f'"{name}"' in message:
            return name
    return "answered"


def not_numbers() -> bytes:
    """A second of a float WAV whose samples are NaN and infinite."""
    samples = np.tile(np.array([np.nan, np.inf, -np.inf, 1e30], "<f4"), 4000).tobytes()
    form = struct.pack("<HHIIHH", 3, 1, 16_000, 64_000, 4, 32)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def vast_index() -> bytes:
    """An MP4 of a second whose index claims a hundred million samples: read as told, it takes gigabytes."""
    with tempfile.TemporaryDirectory() as directory:  # the muxer opens its own file once more
        path = Path(directory, "file")
        with av.open(str(path), "w", format="ipod") as output:
            stream: Any = output.add_stream("aac", rate=16_000, layout="mono")
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.int16), format="s16", layout="mono")
            frame.sample_rate, frame.pts = 16_000, 0
            for part in (frame, None):
                output.mux(stream.encode(part))
        bomb = io.BytesIO(path.read_bytes())
    content = bomb.getvalue()
    for box, offset, values in ((b"stsz", 8, (1, 100_000_000)), (b"stts", 12, (100_000_000, 1))):
        bomb.seek(content.index(box) + offset)
        bomb.write(struct.pack(">II", *values))
    return bomb.getvalue()
