"""What only a real server and real sockets show."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
import websockets


@pytest.fixture
async def served(build: Any) -> AsyncIterator[tuple[Any, int]]:
    """A house and the port where uvicorn serves it."""
    async with build(max_upload_bytes=2_000_000, max_audio_seconds=60) as house:
        config = uvicorn.Config(
            house.app, port=0, lifespan="off", http="httptools", ws="websockets-sansio", log_config=None
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
            await asyncio.sleep(0.005)
        yield house, server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True
        await running


async def test_uploads_above_the_limit(served: Any) -> None:
    house, port = served
    files = house.recording(1, 900)

    async def chunks() -> AsyncIterator[bytes]:
        body = b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\n" + files["file"][1]
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answers = [
            await client.post("/asr", files=files),
            await client.post("/asr", content=chunks(), headers={"content-type": "multipart/form-data; boundary=x"}),
        ]
        assert [answer.status_code for answer in answers] == [413, 413]
        assert {answer.json()["error"]["code"] for answer in answers} == {"request_too_large"}
        assert (await client.post("/asr", files=house.recording())).status_code == 200


async def test_a_client_that_leaves(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    house, port = served
    house.device.running.clear()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/asr", files=house.recording(1, 40), timeout=0.3)
    started = time.perf_counter()
    while house.device.under_way:
        await asyncio.sleep(0.005)
        assert time.perf_counter() - started < 1
    assert house.device.cancelled == 1
    assert "Traceback" not in caplog.text


async def test_rounds_with_a_real_client(served: Any, pcm: Any) -> None:
    _, port = served
    async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as client:
        for number in (7, 8):
            await client.send("START")
            sound = pcm(number, 2)
            for start in range(0, len(sound), 3201):
                await client.send(sound[start : start + 3201])
            await client.send("STOP")
            answers = [json.loads(await client.recv()) for _ in range(3)]
            assert answers[0] == {"event": "started"}
            assert [sentence["text"] for sentence in answers[1]["sentences"]] == [f"number {number}."] * 2
            assert answers[2] == {"event": "stopped"}


async def test_too_much_sound_for_a_real_client(served: Any, pcm: Any) -> None:
    _, port = served
    async with websockets.connect(f"ws://127.0.0.1:{port}/ws") as client:
        await client.send("START")
        await client.recv()
        await client.send(pcm(1, 61))
        assert json.loads(await client.recv())["code"] == "audio_too_long"
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


SERVE = """
import asyncio, sys
from app.server import serve
from app.settings import Settings
from engine.device import DeviceHealth

class Loading:
    health = DeviceHealth(alive=False)
    async def ready(self):
        await asyncio.Event().wait()
    async def close(self):
        print("closed", flush=True)

serve(Loading(), Settings(port=int(sys.argv[1])))
"""


def test_sigterm_is_an_orderly_end() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/health").json()["status"] == "starting"
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        server.send_signal(signal.SIGTERM)
        out, _ = server.communicate(timeout=20)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
    assert out == "closed\n"
