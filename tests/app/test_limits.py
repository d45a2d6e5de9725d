"""Request bodies over real sockets: too large, too slow, too many, without an end."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.requests import ClientDisconnect

from app.limits import BodyLimit, UploadLimits, Uploads

FORM = "multipart/form-data; boundary=x"
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """The port where uvicorn serves an app that is running already."""
    config = uvicorn.Config(app, port=0, lifespan="off", http="httptools", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
        await asyncio.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


def request(port: int, *headers: str, path: str = "/asr") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Type: {FORM}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def deleted_files() -> list[str]:
    """Temporary files of this process that have no name any more and are still open."""
    links = (os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists() or link.is_symlink())
    return [link for link in links if "/tmp" in link and link.endswith("(deleted)")]


@pytest.mark.field("E5")
@pytest.mark.parametrize("sized", [True, False])
async def test_thirty_megabytes(build: Any, sized: bool) -> None:
    """E5: refused early, whatever the client says of the length, with flat memory and no file left."""
    files_before = deleted_files()
    async with build(max_upload_bytes=3_000_000) as house, listening(house.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        piece = bytes(64 * 1024)
        if sized:
            writer.write(request(port, "Content-Length: 30000000") + HEAD)
        else:
            writer.write(request(port, "Transfer-Encoding: chunked") + chunk(HEAD))
        for _ in range(30_000_000 // len(piece)):
            writer.write(piece if sized else chunk(piece))
            await writer.drain()
        answer = await reader.read()
        assert time.perf_counter() - started < 2.5
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()
        assert b"request_too_large" in answer
        assert b"3000000" in answer
        assert (b"30000000 bytes" in answer) is sized
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 20 * 1024
        assert deleted_files() == files_before
        assert house.app.state.services.ledger.under_way == 0
        writer.close()


async def test_an_upload_without_end_is_cut_off(build: Any) -> None:
    """E5: the answer arrives, and then the connection is closed."""
    async with build(max_upload_bytes=1_000_000) as house, listening(house.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, "Transfer-Encoding: chunked") + chunk(HEAD))

        async def flood() -> None:
            while True:
                writer.write(chunk(bytes(8192)))
                await writer.drain()
                await asyncio.sleep(0.001)

        flooding = asyncio.create_task(flood())
        started = time.perf_counter()
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        with pytest.raises(ConnectionError):
            await flooding
        assert time.perf_counter() - started < 5
        writer.close()
        assert (await house.client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "path", "status"),
    [({}, "/nowhere", 404), ({"api_keys": "a-key-that-is-set"}, "/asr", 401), ({"max_uploads": 1}, "/asr", 415)],
)
async def test_any_early_answer_ends_the_upload(build: Any, settings: dict[str, Any], path: str, status: int) -> None:
    async with build(**settings) as house, listening(house.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = request(port, "Transfer-Encoding: chunked", path=path)
        writer.write((head.replace(FORM.encode(), b"text/plain") if status == 415 else head) + chunk(HEAD))
        started = time.perf_counter()
        answer = await reader.read()
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"connection: close" in answer.lower()
        assert time.perf_counter() - started < 4
        writer.close()


async def test_a_body_that_was_read_keeps_the_connection(build: Any) -> None:
    async with build() as house, listening(house.app) as port, httpx.AsyncClient() as client:
        for files in (house.recording(), {"file": b""}, house.recording()):
            answer = await client.post(f"http://127.0.0.1:{port}/asr", files=files)
            assert "connection" not in answer.headers


@pytest.mark.parametrize("pause", [0.05, 10])
async def test_slow_uploads(build: Any, pause: float) -> None:
    """A client that sends a byte now and then, or nothing, holds no upload for long."""
    async with (
        build(upload_grace_seconds=0.3, upload_min_bytes_per_second=1000, max_uploads=1) as house,
        listening(house.app) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(port, "Content-Length: 100000") + HEAD)

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(pause)

        trickling = asyncio.create_task(trickle())
        started = time.perf_counter()
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert time.perf_counter() - started < 1
        assert b'"upload_too_slow"' in await reader.read(1000)
        trickling.cancel()
        assert house.app.state.services.ledger.under_way <= 1
        assert (await house.client.post("/asr", files=house.recording())).status_code == 200
        writer.close()


async def test_a_steady_upload_may_take_its_time(build: Any) -> None:
    async with (
        build(upload_grace_seconds=0.3, upload_min_bytes_per_second=10_000) as house,
        listening(house.app) as port,
    ):
        body = house.client.build_request("POST", "/asr", files=house.recording(5, 1)).read()
        boundary = body.split(b"\r\n", 1)[0][2:].decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = request(port, f"Content-Length: {len(body)}").replace(b"boundary=x", f"boundary={boundary}".encode())
        writer.write(head)
        for start in range(0, len(body), 2000):
            writer.write(body[start : start + 2000])
            await asyncio.sleep(0.05)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_one_upload_too_many(build: Any) -> None:
    async with build(max_uploads=2) as house, listening(house.app) as port:
        uploads = app_uploads(house)
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in connections:
            writer.write(request(port, "Content-Length: 100000") + HEAD)
        await until(lambda: uploads() == 2)
        async with httpx.AsyncClient() as client:
            refused = await client.post(f"http://127.0.0.1:{port}/asr", files=house.recording())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_uploads")
            assert int(refused.headers["retry-after"]) > 0
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
            for _, writer in connections:
                writer.close()
            await until(lambda: uploads() == 0)
            assert (await client.post(f"http://127.0.0.1:{port}/asr", files=house.recording())).status_code == 200


async def test_no_client_is_waited_for_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.limits._SEND_SECONDS", 0.05)
    limits = UploadLimits(max_bytes=1, max_uploads=1, grace_seconds=1, min_bytes_per_second=1)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def full(message: Any) -> None:
        await asyncio.Event().wait()

    scope = {"type": "http", "headers": []}
    with pytest.raises(ClientDisconnect):
        await BodyLimit(app, uploads=Uploads(limits))(scope, full, full)


@pytest.mark.parametrize(
    "part",
    [
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\nFAKE\r\n--x--\r\n'
        % (b"n" * 1_000_000),
        b"--x\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(100_000)) + b"\r\n",
        b"--x\r\n" + b"y" * 1_000_000,
    ],
)
async def test_headers_inside_of_a_form_are_bounded(house: Any, part: bytes) -> None:
    answer = await house.client.post("/asr", content=part, headers={"content-type": FORM})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_form")


async def test_a_full_disk_is_no_fault_of_the_client(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("starlette.datastructures.UploadFile.write", full)
    answer = await house.client.post("/asr", files=house.recording())
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_full")


def app_uploads(house: Any) -> Any:
    """How many uploads the app counts."""
    return lambda: house.app.state.services.uploads.count


async def until(condition: Any) -> None:
    async with asyncio.timeout(3):
        while not condition():  # noqa: ASYNC110 - the app tells in no other way
            await asyncio.sleep(0.01)
