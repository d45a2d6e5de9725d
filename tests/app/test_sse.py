"""Streams as the wire sees them: raw ASGI messages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from app.sse import EventStream
from engine.device import DeviceGone

Message = MutableMapping[str, Any]


class Wire:
    """One request whose client stays until told to leave."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.released = False

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, events: AsyncGenerator[Any, None], ping_seconds: float = 15.0) -> None:
        upload = AsyncExitStack()
        upload.callback(self.release)
        stream = EventStream(events, holding=upload, ping_seconds=ping_seconds)
        await stream({"type": "http"}, self.receive, self.send)

    def release(self) -> None:
        self.released = True

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - what is sent tells in no other way
            await asyncio.sleep(0)

    @property
    def body(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}


async def words(*texts: str) -> AsyncGenerator[dict[str, str], None]:
    for text in texts:
        yield {"text": text}


async def test_events(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    await wire.run(words("hello", "你\n好"))
    assert wire.body == 'data: {"text":"hello"}\n\ndata: {"text":"你\\n好"}\n\n'
    assert wire.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    assert [message.get("more_body") for message in wire.sent] == [None, True, True, False]
    assert wire.released
    assert not caplog.records


async def test_no_events() -> None:
    wire = Wire()
    await wire.run(words())
    assert [message["type"] for message in wire.sent] == ["http.response.start", "http.response.body"]


async def test_each_event_goes_out_at_once() -> None:
    wire, more = Wire(), asyncio.Event()

    async def events() -> AsyncGenerator[dict[str, str], None]:
        yield {"text": "first"}
        await more.wait()
        yield {"text": "second"}

    running = asyncio.create_task(wire.run(events()))
    async with asyncio.timeout(1):
        await wire.until(lambda: "first" in wire.body)
    assert "second" not in wire.body
    more.set()
    await running
    assert "second" in wire.body


async def test_pings_while_nothing_happens() -> None:
    wire, more = Wire(), asyncio.Event()

    async def events() -> AsyncGenerator[dict[str, str], None]:
        await more.wait()
        yield {"text": "late"}

    running = asyncio.create_task(wire.run(events(), ping_seconds=0.01))
    async with asyncio.timeout(1):
        await wire.until(lambda: wire.body.count(": ping\n\n") >= 3)
    more.set()
    await running
    assert wire.sent[0]["status"] == 200
    assert wire.body.replace(": ping\n\n", "") == 'data: {"text":"late"}\n\n'


@pytest.mark.parametrize(
    ("error", "status"), [(DeviceGone("killed"), 503), (ValueError("no"), 400), (KeyError(1), 500)]
)
async def test_refused_before_the_first_byte(error: Exception, status: int) -> None:
    wire = Wire()

    async def events() -> AsyncGenerator[dict[str, str], None]:
        raise error
        yield {}

    await wire.run(events())
    assert wire.sent[0]["status"] == status
    assert wire.headers["content-type"] == "application/json"
    assert set(json.loads(wire.body)) == {"error"}
    assert wire.released


async def test_failed_midway() -> None:
    wire = Wire()

    async def events() -> AsyncGenerator[dict[str, str], None]:
        yield {"text": "one"}
        raise DeviceGone("the engine was killed")

    await wire.run(events())
    first, second, rest = wire.body.split("\n\n")
    assert (first, rest) == ('data: {"text":"one"}', "")
    event, data = second.split("\n")
    assert event == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "engine_unavailable")
    assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize("begun", [True, False])
async def test_leaving_closes_the_generator(begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    wire, entered, closed = Wire(), asyncio.Event(), False

    async def events() -> AsyncGenerator[dict[str, str], None]:
        nonlocal closed
        try:
            if begun:
                yield {"text": "one"}
            entered.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed = True

    running = asyncio.create_task(wire.run(events()))
    await entered.wait()
    await asyncio.sleep(0.01)
    wire.gone.set()
    started = time.perf_counter()
    if begun:
        await running
    else:
        with pytest.raises(ClientDisconnect):
            await running
    assert time.perf_counter() - started < 1
    assert closed
    assert wire.released
    assert bool(wire.sent) == begun
    assert not caplog.records


async def test_a_client_that_does_not_read_holds_up_nothing() -> None:
    """The work goes on and ends; only the socket waits."""
    wire, done = Wire(), asyncio.Event()

    async def events() -> AsyncGenerator[dict[str, str], None]:
        for number in range(100):
            yield {"text": str(number)}
        done.set()

    async def stuck(message: Message) -> None:
        await asyncio.Event().wait()

    wire.send = stuck  # type: ignore[method-assign]
    running = asyncio.create_task(wire.run(events()))
    async with asyncio.timeout(1):
        await done.wait()
        await wire.until(lambda: wire.released)
    wire.gone.set()
    await running
