from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

Message = dict[str, Any]


class Socket:
    """A client of `/ws` on the raw ASGI interface, so that each frame is exactly what the test sends."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()

    async def run(self) -> None:
        scope = {"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "subprotocols": []}
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def open(self) -> None:
        await self._to_app.put({"type": "websocket.connect"})
        assert (await self._from_app.get())["type"] == "websocket.accept"

    def send(self, *frames: str | bytes) -> None:
        for frame in frames:
            kind = "text" if isinstance(frame, str) else "bytes"
            self._to_app.put_nowait({"type": "websocket.receive", kind: frame})

    async def answers(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(5):
            return [json.loads((await self._from_app.get())["text"]) for _ in range(count)]

    async def close_code(self) -> int:
        async with asyncio.timeout(5):
            message = await self._from_app.get()
        assert message["type"] == "websocket.close"
        code: int = message["code"]
        return code

    def leave(self) -> None:
        self._to_app.put_nowait({"type": "websocket.disconnect", "code": 1001})


Connect = Callable[[Any], AbstractAsyncContextManager[Socket]]


@pytest.fixture
def connect() -> Connect:
    @asynccontextmanager
    async def connect(house: Any) -> AsyncIterator[Socket]:
        socket = Socket(house.app)
        running = asyncio.create_task(socket.run())
        await socket.open()
        yield socket
        socket.leave()
        async with asyncio.timeout(5):
            await running

    return connect


FINAL = {
    "sentences": [
        {
            "text": "number 7.",
            "start": 1000,
            "end": 2000,
            "words": [{"word": "number", "start": 1100, "end": 1500}, {"word": "7.", "start": 1500, "end": 1900}],
        }
    ],
    "is_final": True,
    "duration_ms": 2250,
}


async def test_a_round(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send("START", pcm(0, 1), pcm(7, 1.25), "STOP")
        assert await socket.answers(3) == [{"event": "started"}, FINAL, {"event": "stopped"}]


async def test_milliseconds_are_whole(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send("start", pcm(7, 1), "stop")
        _, final, _ = await socket.answers(3)
    times = [word[edge] for word in final["sentences"][0]["words"] for edge in ("start", "end")]
    assert all(type(time) is int for time in [*times, final["duration_ms"]])


@pytest.mark.parametrize("size", [1, 3, 1001, 31_999])
async def test_sound_is_cut_anywhere(house: Any, connect: Any, pcm: Any, size: int) -> None:
    sound = pcm(0, 1) + pcm(7, 1.25) + b"\x07"
    frames = [sound[start : start + size] for start in range(0, len(sound), size)]
    async with connect(house) as socket:
        socket.send("START", *frames, "STOP")
        assert await socket.answers(3) == [{"event": "started"}, FINAL, {"event": "stopped"}]


async def test_options_hold_for_all_rounds(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send("language:中文", "HOTWORDS:甲\N{FULLWIDTH COMMA} 乙,", "SPK:off")
        assert await socket.answers(3) == [
            {"event": "language_set", "language": "中文"},
            {"event": "hotwords_set", "hotwords": ["甲", "乙"]},
            {"event": "spk_set", "spk": False},
        ]
        for number in (3, 4):
            socket.send("START", pcm(number), "STOP")
            _, final, _ = await socket.answers(3)
            assert [sentence["text"] for sentence in final["sentences"]] == [f"number {number}."]
        socket.send("LANGUAGE:auto", "HOTWORDS:")
        assert await socket.answers(2) == [
            {"event": "language_set", "language": None},
            {"event": "hotwords_set", "hotwords": []},
        ]
        socket.send("START", pcm(5), "STOP")
        await socket.answers(3)
    assert [(asked.language, asked.hotwords) for asked in house.device.asked] == [
        ("zh", ("甲", "乙")),
        ("zh", ("甲", "乙")),
        (None, ()),
    ]


async def test_start_again_forgets_the_sound(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send("START", pcm(3), "START", pcm(4), "STOP")
        answers = await socket.answers(4)
    assert answers[:2] == [{"event": "started"}] * 2
    assert [sentence["text"] for sentence in answers[2]["sentences"]] == ["number 4."]


async def test_outside_of_a_round(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send(pcm(3), "hello", "", b"", "STOP", "START", "STOP", pcm(3), "STOP")
        assert await socket.answers(5) == [
            {"event": "stopped"},
            {"event": "started"},
            {"sentences": [], "is_final": True, "duration_ms": 0},
            {"event": "stopped"},
            {"event": "stopped"},
        ]
    assert not house.device.asked


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("LANGUAGE:klingon", "invalid_language"),
        ("LANGUAGE:fr", "invalid_language"),
        ("SPK:on", "unsupported_parameter"),
        ("SPK:perhaps", "invalid_value"),
    ],
)
async def test_refused_commands_change_nothing(house: Any, connect: Any, pcm: Any, command: str, code: str) -> None:
    async with connect(house) as socket:
        socket.send("LANGUAGE:de", command, "START", pcm(7), "STOP")
        _, error, _, final, _ = await socket.answers(5)
    assert (error["event"], error["code"]) == ("error", code)
    assert error["message"]
    assert final["is_final"]
    assert house.device.asked[0].language == "de"


async def test_too_much_sound(build: Any, connect: Any, pcm: Any) -> None:
    async with build(max_audio_seconds=2) as house, connect(house) as socket:
        socket.send("START", pcm(1, 2), b"\0")
        _, error = await socket.answers(2)
        assert (error["event"], error["code"]) == ("error", "audio_too_long")
        assert await socket.close_code() == 1009


async def test_too_long_a_command(house: Any, connect: Any) -> None:
    async with connect(house) as socket:
        socket.send("HOTWORDS:" + "x" * 70_000)
        assert (await socket.answers())[0]["code"] == "request_too_large"
        assert await socket.close_code() == 1009


async def test_not_ready(build: Any, new_device: Any, connect: Any) -> None:
    device = new_device()
    device.loaded.clear()
    async with build(device) as house, connect(house) as socket:
        assert (await socket.answers())[0]["code"] == "model_loading"
        assert await socket.close_code() == 1013


async def test_the_device_dies(house: Any, connect: Any, pcm: Any) -> None:
    async with connect(house) as socket:
        socket.send("START", pcm(7))
        await socket.answers()
        house.device.failure = "killed"
        socket.send("STOP")
        assert (await socket.answers())[0]["code"] == "engine_unavailable"
        assert await socket.close_code() == 1013


async def test_a_fault_of_ours(house: Any, connect: Any, pcm: Any) -> None:
    house.device.refusal = KeyError("secret")
    async with connect(house) as socket:
        socket.send("START", pcm(7), "STOP")
        _, error = await socket.answers(2)
        assert error["code"] == "internal_error"
        assert "secret" not in error["message"]
        assert await socket.close_code() == 1011


async def test_the_recogniser_refuses(house: Any, connect: Any, pcm: Any) -> None:
    house.device.refusal = ValueError("too many hotwords")
    async with connect(house) as socket:
        socket.send("START", pcm(7), "STOP")
        _, error, stopped = await socket.answers(3)
        assert error == {"event": "error", "code": "unsupported_option", "message": "too many hotwords"}
        assert stopped == {"event": "stopped"}
        house.device.refusal = None
        socket.send("START", pcm(8), "STOP")
        assert (await socket.answers(3))[1]["sentences"][0]["text"] == "number 8."


async def test_leaving_cancels(house: Any, connect: Any, pcm: Any) -> None:
    house.device.running.clear()
    async with connect(house) as socket:
        socket.send("START", pcm(7), "STOP", "START", pcm(8))
        await socket.answers()
        await house.device.entered.acquire()
    assert (house.device.under_way, house.device.cancelled) == (0, 1)


async def test_the_next_round_may_be_sent_early(house: Any, connect: Any, pcm: Any) -> None:
    house.device.running.clear()
    async with connect(house) as socket:
        socket.send("START", pcm(7), "STOP", "START", *[pcm(8, 0.5)] * 2, "STOP")
        await house.device.entered.acquire()
        house.device.running.set()
        answers = await socket.answers(6)
    assert [answer["sentences"][0]["text"] for answer in answers if "sentences" in answer] == ["number 7.", "number 8."]


async def test_sixteen_sockets_at_once(house: Any, connect: Any, pcm: Any) -> None:
    async def one(number: int) -> str:
        async with connect(house) as socket:
            socket.send("START", pcm(number), "STOP")
            _, final, _ = await socket.answers(3)
            text: str = final["sentences"][0]["text"]
            return text

    texts = await asyncio.gather(*map(one, range(1, 17)))
    assert texts == [f"number {number}." for number in range(1, 17)]
