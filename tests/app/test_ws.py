from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

Message = dict[str, Any]


class Socket:
    """A client of `/ws` on the raw ASGI interface, so that each frame is exactly what the test sends."""

    def __init__(self, app: Any, headers: dict[str, str] | None = None, subprotocols: tuple[str, ...] = ()) -> None:
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._subprotocols = subprotocols
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()

    async def run(self) -> None:
        scope = {
            "type": "websocket",
            "path": "/ws",
            "headers": self._headers,
            "query_string": b"",
            "subprotocols": list(self._subprotocols),
            "extensions": {"websocket.http.response": {}},
        }
        await self._app(scope, self._to_app.get, self._from_app.put)

    async def knock(self) -> Message:
        """What the server says to the handshake."""
        await self._to_app.put({"type": "websocket.connect"})
        async with asyncio.timeout(5):
            return await self._from_app.get()

    async def open(self) -> None:
        assert (await self.knock())["type"] == "websocket.accept"

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


async def knock(house: Any, headers: dict[str, str] | None = None, subprotocols: tuple[str, ...] = ()) -> Message:
    """The answer to a handshake; the client leaves then."""
    socket = Socket(house.app, headers, subprotocols)
    running = asyncio.create_task(socket.run())
    answer = await socket.knock()
    socket.leave()
    await running
    return answer


async def test_a_frame_that_is_too_large(build: Any, connect: Any, pcm: Any) -> None:
    async with build(ws_max_frame_bytes=1000) as house, connect(house) as socket:
        socket.send("START", bytes(1000), bytes(1002))
        _, error = await socket.answers(2)
        assert (error["event"], error["code"]) == ("error", "frame_too_large")
        assert "1002 bytes" in error["message"]
        assert "1000" in error["message"]
        assert await socket.close_code() == 1009


@pytest.mark.parametrize("frames", [(), ("START",), ("START", b"\0\0"), ("START", "STOP")])
async def test_a_silent_client(build: Any, connect: Any, frames: tuple[str | bytes, ...]) -> None:
    async with build(ws_idle_seconds=0.1) as house, connect(house) as socket:
        socket.send(*frames)
        answers = await socket.answers({0: 1, 1: 2, 2: 2 if frames[-1:] != ("STOP",) else 4}[len(frames)])
        assert (answers[-1]["event"], answers[-1]["code"]) == ("error", "idle_timeout")
        assert await socket.close_code() == 1008


async def test_no_timeout_while_the_server_works(build: Any, connect: Any, pcm: Any) -> None:
    async with build(ws_idle_seconds=0.1) as house, connect(house) as socket:
        house.device.running.clear()
        socket.send("START", pcm(7), "STOP")
        await house.device.entered.acquire()
        await asyncio.sleep(0.3)
        house.device.running.set()
        assert (await socket.answers(3))[1]["is_final"]


async def test_one_socket_too_many(build: Any, connect: Any) -> None:
    async with build(max_sockets=1) as house, connect(house) as first:
        async with connect(house) as second:
            assert (await second.answers())[0]["code"] == "too_many_sockets"
            assert await second.close_code() == 1013
        first.send("START")
        assert await first.answers() == [{"event": "started"}]


async def test_all_sockets_together_hold_so_much(build: Any, connect: Any, pcm: Any) -> None:
    async with build(ws_max_buffer_bytes=100_000) as house, connect(house) as first, connect(house) as second:
        for socket in (first, second):
            socket.send("START", pcm(7))
            await socket.answers()
        second.send("STOP", "START", pcm(7, 3))
        _, _, _, error = await second.answers(4)
        assert error["code"] == "server_busy"
        assert await second.close_code() == 1013
        first.send(pcm(7, 2), "STOP")
        assert (await first.answers(2))[0]["duration_ms"] == 3000
        assert house.app.state.services.sockets.bytes == 0


async def test_a_busy_server_refuses_the_round_and_keeps_the_socket(build: Any, connect: Any, pcm: Any) -> None:
    async with build(max_requests=1) as house, connect(house) as socket:
        house.device.running.clear()
        running = asyncio.create_task(house.client.post("/asr", files=house.recording()))
        await house.device.entered.acquire()
        socket.send("START", pcm(7), "STOP")
        _, error, stopped = await socket.answers(3)
        assert (error["code"], stopped) == ("server_busy", {"event": "stopped"})
        house.device.running.set()
        await running
        socket.send("START", pcm(7), "STOP")
        assert (await socket.answers(3))[1]["is_final"]


async def test_memory_is_linear_in_the_sound(house: Any, connect: Any) -> None:
    """A minute in frames of 20 ms costs no more than its samples a few times over."""
    frame = bytes(640)
    async with connect(house) as socket:
        tracemalloc.start()
        socket.send("START", *[frame] * 3000)
        await socket.answers()
        await asyncio.sleep(0.1)
        before, _ = tracemalloc.get_traced_memory()
        socket.send("STOP")
        await socket.answers(2)
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak - before < 4 * 3000 * len(frame)
    assert after < before


async def test_rounds_are_requests_in_the_log(house: Any, connect: Any, pcm: Any, caplog: Any) -> None:
    caplog.set_level("INFO")
    async with connect(house) as socket:
        for number in (1, 2):
            socket.send("START", pcm(number), "STOP")
            await socket.answers(3)
    rounds = [record for record in caplog.records if record.name == "tinglu.access"]
    assert [(each.status, each.audio_seconds) for each in rounds] == [(200, 1.0), (200, 1.0)]
    assert len({each.request_id for each in rounds}) == 1


KEY = "a-key-for-sockets"


@pytest.mark.parametrize(
    ("headers", "subprotocols", "accepted"),
    [
        ({}, (), False),
        ({"authorization": "Bearer wrong"}, (), False),
        ({"authorization": f"Bearer {KEY}"}, (), True),
        ({}, ("tinglu", f"tinglu-api-key.{KEY}"), True),
        ({}, ("tinglu", "tinglu-api-key.wrong"), False),
        ({}, (KEY,), False),
    ],
)
async def test_keys(build: Any, headers: dict[str, str], subprotocols: tuple[str, ...], accepted: bool) -> None:
    """E22."""
    async with build(api_keys=KEY) as house:
        answer = await knock(house, headers, subprotocols)
    if accepted:
        assert answer["type"] == "websocket.accept"
        assert answer["subprotocol"] == ("tinglu" if subprotocols else None)
    else:
        assert (answer["type"], answer["status"]) == ("websocket.http.response.start", 401)


@pytest.mark.parametrize(
    ("origin", "allowed", "accepted"),
    [
        (None, None, True),
        ("http://tinglu:8899", None, True),
        ("https://elsewhere.example", None, False),
        ("null", None, False),
        ("https://page.example", "https://page.example", True),
        ("https://elsewhere.example", "https://page.example", False),
        ("null", "*", True),
    ],
)
async def test_pages_of_other_sites(build: Any, origin: str | None, allowed: str | None, accepted: bool) -> None:
    async with build(allowed_origins=allowed) as house:
        answer = await knock(house, {"host": "tinglu:8899", **({"origin": origin} if origin else {})})
    assert (answer["type"] == "websocket.accept") is accepted
    assert dict(answer["headers"])[b"x-request-id"]


async def test_the_server_ends(house: Any, connect: Any, pcm: Any) -> None:
    """E25: a round under way is finished, a new one is not begun."""
    async with connect(house) as socket:
        socket.send("START", pcm(7))
        await socket.answers()
        house.app.state.services.readiness.stop()
        socket.send("STOP", "START")
        assert [answer.get("event") for answer in await socket.answers(3)] == [None, "stopped", "error"]
        assert await socket.close_code() == 1013
