"""E2 and E10: transcripts in pieces, over the whole app."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, MutableMapping
from dataclasses import replace
from typing import Any

import openai
import pytest

from engine.device import DeviceGone

DOOR = "/v1/audio/transcriptions"
Message = MutableMapping[str, Any]


@pytest.fixture
def stepwise(new_device: Any) -> Any:
    """A device that finishes a segment whenever it is given a permit, and dies at the one that is told to it."""

    class Stepwise(new_device):  # type: ignore[misc]
        def __init__(self, dies_at: int | None = None, text: str = "{}") -> None:
            super().__init__()
            self.steps = asyncio.Semaphore(0)
            self.dies_at, self.text = dies_at, text

        async def _hypotheses(self, heard: Any, spans: Any, options: Any) -> AsyncGenerator[Any, None]:
            self.under_way += 1
            try:
                for index, span in enumerate(spans):
                    await self.steps.acquire()
                    if index == self.dies_at:
                        raise DeviceGone("killed")
                    hypothesis = self._hypothesis(index, heard[span.slice()], options)
                    yield replace(hypothesis, text=self.text.format(index))
            finally:
                self.under_way -= 1

    return Stepwise


class Wire:
    """One raw ASGI request to a house."""

    def __init__(self, house: Any, seconds: float, **fields: str) -> None:
        self._app = house.app
        self._request = house.client.build_request(
            "POST", DOOR, files=house.recording(3, seconds), data={"stream": "true", **fields}
        )
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Event()
        self._body: bytes | None = None

    async def run(self) -> None:
        self._body = await self._request.aread()
        scope = {
            "type": "http",
            "method": "POST",
            "path": DOOR,
            "query_string": b"",
            "headers": [(name.lower(), value) for name, value in self._request.headers.raw],
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        self.news.set()

    @property
    def events(self) -> list[Any]:
        text = b"".join(message.get("body", b"") for message in self.sent).decode()
        return [json.loads(frame.partition("data: ")[2]) for frame in text.split("\n\n") if frame]

    async def next(self, count: int) -> list[Any]:
        """The events, as soon as there are so many."""
        async with asyncio.timeout(2):
            while len(self.events) < count:
                self.news.clear()
                await self.news.wait()
        return self.events


async def test_segments_go_out_as_soon_as_they_are_ready(build: Any, stepwise: Any) -> None:
    async with build(stepwise()) as house:
        wire = Wire(house, 3)
        running = asyncio.create_task(wire.run())
        for number in range(3):
            assert len(wire.events) == number
            house.device.steps.release()
            events = await wire.next(number + 1)
            assert events[-1]["type"] == "transcript.text.delta" or number == 2
        await running
        headers = dict(wire.sent[0]["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-cache", b"no")
        assert "".join(event.get("delta", "") for event in wire.events) == "0 1 2"
        assert wire.events[-1] == {
            "type": "transcript.text.done",
            "text": "0 1 2",
            "usage": {"type": "duration", "seconds": 3},
        }


@pytest.mark.field("C8")
async def test_the_deltas_of_unspaced_text(build: Any, stepwise: Any) -> None:
    async with build(stepwise(text="第{}句。")) as house:
        house.device.steps = asyncio.Semaphore(9)
        wire = Wire(house, 2)
        await wire.run()
        assert [event.get("delta") for event in wire.events] == ["第0句。", "第1句。", None]
        assert wire.events[-1]["text"] == "第0句。第1句。"


@pytest.mark.field("E10")
@pytest.mark.parametrize("begun", [True, False])
async def test_leaving(build: Any, stepwise: Any, begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with build(stepwise()) as house:
        wire = Wire(house, 40)  # a recording that lies on disk
        running = asyncio.create_task(wire.run())
        if begun:
            house.device.steps.release()
            await wire.next(1)
        async with asyncio.timeout(2):
            while not house.device.under_way:  # noqa: ASYNC110 - a fake has no events
                await asyncio.sleep(0.001)
        wire.gone.set()
        started = time.perf_counter()
        await running
        assert time.perf_counter() - started < 1
        assert house.device.under_way == 0
        assert wire.sent[0]["status"] == (200 if begun else 499)
        assert wire.sent[-1].get("more_body") is not False or not begun
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
        assert (await house.client.post("/asr", files=house.recording(0))).status_code == 200


@pytest.mark.field("E2")
async def test_the_device_dies_midway(build: Any, stepwise: Any) -> None:
    async with build(stepwise(dies_at=1)) as house:
        house.device.steps = asyncio.Semaphore(9)
        sdk = openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client, max_retries=0)
        stream: Any = await sdk.audio.transcriptions.create(
            model="whisper-1", file=house.recording(3, 3)["file"], stream=True
        )
        assert (await anext(stream)).delta == "0"
        with pytest.raises(openai.APIError, match="not running") as error:
            await anext(stream)
        assert (error.value.code, error.value.type) == ("engine_unavailable", "server_error")


@pytest.mark.parametrize(
    ("content", "status", "code"), [(b"", 400, "empty_file"), (b"junk", 400, "invalid_audio"), (None, 503, None)]
)
async def test_refusals_keep_their_status(house: Any, content: bytes | None, status: int, code: str | None) -> None:
    if content is None:
        house.device.failure = "killed"
    files = house.recording() if content is None else {"file": ("x.wav", content)}
    answer = await house.client.post(DOOR, files=files, data={"stream": "true"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert code in (None, answer.json()["error"]["code"])


async def test_a_recording_on_disk_lives_as_long_as_its_stream(house: Any) -> None:
    answer = await house.client.post(DOOR, files=house.recording(2, 40), data={"stream": "true"})
    assert answer.text.count("transcript.text.delta") == 40
    (decoded,) = house.decoder.decoded
    assert isinstance(decoded.content, str)
