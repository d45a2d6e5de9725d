"""Heads of requests that come slowly, in pieces, without end, or are none, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn
import websockets

from app.heads import MAX_HEAD_BYTES, BoundedHeads
from tests.processes import number_server

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Connection]]

HEALTH = b"GET /health HTTP/1.1\r\nhost: tinglu\r\n\r\n"


@asynccontextmanager
async def serving(app: Any, seconds: float) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        port=0,
        lifespan="off",
        http=partial(BoundedHeads, head_seconds=seconds),  # type: ignore[arg-type]
        ws="websockets-sansio",
        log_config=None,
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
        await asyncio.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


@pytest.fixture
async def port(house: Any) -> AsyncIterator[int]:
    async with serving(house.app, 0.3) as port:
        yield port


@pytest.fixture
async def connect(port: int) -> AsyncIterator[Connect]:
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return reader, writer

    yield connect
    for writer in opened:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(await reader.readexactly(int(headers["content-length"])))


async def check_closed(reader: asyncio.StreamReader, status: int, code: str) -> None:
    """The refusal comes, and then the connection ends."""
    async with asyncio.timeout(5):
        told, headers, body = await read_answer(reader)
        assert (told, body["error"]["code"]) == (status, code)
        assert (headers["connection"], headers["x-should-retry"]) == ("close", "false")
        assert await reader.read() == b""


async def trickle(writer: asyncio.StreamWriter, content: bytes) -> None:
    """A byte every now and then, as long as anybody listens."""
    try:
        for byte in content:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)
    except ConnectionError:
        pass


async def test_a_connection_on_which_nothing_comes(connect: Connect) -> None:
    reader, _ = await connect()
    async with asyncio.timeout(5):
        assert await reader.read() == b""


@pytest.mark.parametrize("start", [b"", b"\r\n", HEALTH])
async def test_a_head_that_comes_byte_by_byte(connect: Connect, start: bytes) -> None:
    """Also after an empty line, which belongs to no request, and after a request that was served."""
    reader, writer = await connect()
    writer.write(start)
    if start == HEALTH:
        assert (await read_answer(reader))[0] == 200
    sending = asyncio.create_task(trickle(writer, b"GET /health HTTP/1.1\r\nx: " + b"x" * 1000))
    await check_closed(reader, 408, "request_too_slow")
    sending.cancel()


async def test_a_head_in_pieces_and_the_next_in_the_same_packet(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(HEALTH[:9])
    await asyncio.sleep(0.05)
    writer.write(HEALTH[9:] + HEALTH)
    assert [(await read_answer(reader))[0] for _ in range(2)] == [200, 200]


async def test_slow_bodies_and_long_work_are_no_slow_heads(house: Any, port: int) -> None:
    files = house.recording(5)
    request = httpx.Request("POST", "http://tinglu/asr", files=files)
    body = request.read()

    async def slowly() -> AsyncIterator[bytes]:
        for start in range(0, len(body), len(body) // 4):
            await asyncio.sleep(0.15)
            yield body[start : start + len(body) // 4]

    house.device.running.clear()
    asyncio.get_running_loop().call_later(1.2, house.device.running.set)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        answer = await client.post("/asr", content=slowly(), headers={"content-type": request.headers["content-type"]})
    assert answer.json()["text"] == "number 5."


async def test_an_answer_comes_before_the_next_head_is_held_for_slow(house: Any, connect: Connect) -> None:
    reader, writer = await connect()
    request = httpx.Request("POST", "http://tinglu/asr", files=house.recording(5))
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    house.device.running.clear()
    writer.write(f"POST /asr HTTP/1.1\r\n{head}\r\n".encode() + request.read() + b"GET /hea")
    asyncio.get_running_loop().call_later(0.8, house.device.running.set)
    status, _, body = await read_answer(reader)
    assert (status, body["text"]) == (200, "number 5.")
    await check_closed(reader, 408, "request_too_slow")


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health HTTP/1.1\r\n",
        b"GET /health HTTP/1.1\r\nx: ",
        b"GET /",
    ],
)
async def test_a_head_without_end(connect: Connect, start: bytes) -> None:
    reader, writer = await connect()
    filling = b"y: z\r\n" if start.endswith(b"\n") else b"abcdef"
    writer.write(start)
    for _ in range(8):
        writer.write(filling * (MAX_HEAD_BYTES // 6))
        await asyncio.sleep(0.01)
    await check_closed(reader, 431, "request_head_too_large")


async def test_trailers_without_end(house: Any, connect: Connect) -> None:
    _, writer = await connect()
    writer.write(
        b"POST /asr HTTP/1.1\r\nhost: tinglu\r\ntransfer-encoding: chunked\r\n"
        b"content-type: multipart/form-data; boundary=x\r\n\r\n1\r\nx\r\n0\r\n"
    )
    async with asyncio.timeout(5):
        while not writer.is_closing():
            writer.write(b"y: z\r\n" * 10_000)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0.01)
    assert not house.device.asked


async def test_what_is_no_http(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"\x16\x03\x01\x02\x00 a TLS greeting\r\n\r\n")
    await check_closed(reader, 400, "invalid_request")


async def test_sockets_live_on(port: int) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as client:
        await asyncio.sleep(0.6)
        await client.send("START")
        assert json.loads(await client.recv()) == {"event": "started"}


def test_the_setting() -> None:
    """A connection that says nothing is closed by a real server too."""
    with number_server(header_timeout_seconds=0.3) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as silent:
            assert silent.recv(10_000) == b""
        assert server.health()["status"] == "ok"
