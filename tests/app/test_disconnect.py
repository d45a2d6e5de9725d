from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest

Message = MutableMapping[str, Any]


async def call(app: Any, request: httpx.Request, receive: Callable[[], Awaitable[Message]]) -> list[Message]:
    """One raw ASGI call; returns what the app sent."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "method": request.method,
        "path": request.url.path,
        "query_string": b"",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
    }

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


@pytest.mark.field("E10")
@pytest.mark.parametrize("door", ["/asr", "/v1/audio/transcriptions"])
async def test_leaving_cancels_everything(house: Any, door: str) -> None:
    house.device.running.clear()
    request = house.client.build_request("POST", door, files=house.recording(3, 5))
    messages = [{"type": "http.request", "body": await request.aread(), "more_body": False}]
    gone = asyncio.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    under_way = asyncio.create_task(call(house.app, request, receive))
    await house.device.entered.acquire()
    gone.set()
    async with asyncio.timeout(1):
        sent = await under_way
    assert (house.device.under_way, house.device.cancelled) == (0, 1)
    assert sent[0]["status"] == 499
    assert (await house.client.get("/health")).json()["status"] == "ok"


async def test_leaving_during_the_upload(house: Any) -> None:
    request = house.client.build_request("POST", "/asr", files=house.recording(3, 100))
    body = await request.aread()
    messages = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": body[:2_000_000], "more_body": True},
    ]

    async def receive() -> Message:
        return messages.pop()

    sent = await call(house.app, request, receive)
    assert sent[0]["status"] == 499
    assert not house.decoder.decoded
