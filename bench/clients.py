"""Clients that load a server from processes of their own, over sockets that stay open, and hardly cost anything.

A general HTTP client in Python takes longer for a request than the server has for it. This one knows one request: a
multipart form with a WAV file in it, answered with a Content-Length.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench import clips

_BOUNDARY = b"bench-7d1f0c"
_FIELD = b'Content-Disposition: form-data; name="file"; filename="clip.wav"\r\nContent-Type: audio/wav\r\n\r\n'
_BEFORE = b"--" + _BOUNDARY + b"\r\n" + _FIELD
_AFTER = b"\r\n--" + _BOUNDARY + b"--\r\n"
_HEALTH_EVERY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does: `connections` clients, each with one request under way from `begin` to `end`.

    Times are `time.monotonic()`, which all processes of a machine share. Clip numbers are `first_clip`, and on from
    there in steps of `stride`.
    """

    port: int
    path: str
    connections: int
    clip_seconds: float
    first_clip: int
    stride: int
    begin: float
    end: float


@dataclass(slots=True)
class Log:
    """When each request was sent and answered, and what failed."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run_clients(plan: Plan) -> Log:
    """Runs in a process of its own."""
    return asyncio.run(_clients(plan))


def watch_health(port: int, begin: float, end: float) -> Log:
    """Ask for `/health` every 20 ms; runs in a process of its own."""
    return asyncio.run(_watch_health(port, begin, end))


def prepare() -> None:
    """What a process does once, before anything is measured."""
    clips.pcm(0, 1.0)


class Connection:
    """One client: a request, its answer, the next request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._exchange(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(), ())

    async def post_file(self, path: str, blocks: Iterable[bytes], size: int) -> tuple[int, bytes]:
        """Send a file of `size` bytes as the form's recording; status and body of the answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the server closed the connection.
        """
        length = len(_BEFORE) + size + len(_AFTER)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; "
            f"boundary={_BOUNDARY.decode()}\r\nContent-Length: {length}\r\n\r\n"
        )
        return await self._exchange(head.encode() + _BEFORE, (*blocks, _AFTER) if size < 1 << 24 else _chain(blocks))

    async def _exchange(self, head: bytes, body: Iterable[bytes]) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)
        reader, writer = self._streams
        writer.write(head)
        for block in body:
            writer.write(block)
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        at = lowered.index(b"content-length:") + len(b"content-length:")
        answer = await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
        if b"connection: close" in lowered:
            self.close()
        return int(head[9:12]), answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _chain(blocks: Iterable[bytes]) -> Iterable[bytes]:
    yield from blocks
    yield _AFTER


async def _clients(plan: Plan) -> Log:
    log = Log()
    numbers = iter(range(plan.first_clip, 1 << 60, plan.stride))
    size = len(clips.wav(0, plan.clip_seconds))

    async def client() -> None:
        connection = Connection(plan.port)
        await asyncio.sleep(plan.begin - time.monotonic())
        while (sent := time.monotonic()) < plan.end:
            try:
                status, answer = await connection.post_file(
                    plan.path, [clips.wav(next(numbers), plan.clip_seconds)], size
                )
            except (OSError, asyncio.IncompleteReadError) as error:
                connection.close()
                status, answer = 0, repr(error).encode()
            if status == 200:
                log.spans.append((sent, time.monotonic()))
            else:
                log.failures.append(f"{status} {answer[:200].decode(errors='replace')}")
                await asyncio.sleep(0.05)
        connection.close()

    await asyncio.gather(*(client() for _ in range(plan.connections)))
    return log


async def _watch_health(port: int, begin: float, end: float) -> Log:
    log = Log()
    connection = Connection(port)
    due = begin
    while due < end:
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        try:
            status, answer = await connection.get("/health")
        except (OSError, asyncio.IncompleteReadError) as error:
            connection.close()
            status, answer = 0, repr(error).encode()
        now = time.monotonic()
        if status == 200:
            log.spans.append((sent, now))
        else:
            log.failures.append(f"{status} {answer[:200].decode(errors='replace')}")
        due = max(due + _HEALTH_EVERY_SECONDS, now)
    connection.close()
    return log
