"""The whole server with Fun-ASR-Nano behind its doors, on the tiny checkpoint: its texts are noise, always the same.

Long segments would loop, and be decoded in halves until they are too short for it; clips below 4 s keep this quick.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import soundfile
import websockets

from bench.server import Server, running_server

TESTS = Path(__file__).parents[1]
CLIP = TESTS / "data" / "nano-3.1s.wav"
CLIPS = ("goforward", "numbers", "something", "cards-005", "austen-0880", "austen-0930", "nano-3.1s", "nano-0.5s")
PROMPTS: tuple[dict[str, str], ...] = (
    {},
    {"language": "zh"},
    {"hotwords": "开放时间,Tinglu"},
    {"language": "English", "hotwords": "ten meters"},
)


@pytest.fixture(scope="module")
def nano() -> Iterator[Server]:
    with running_server("--model", str(TESTS / "parity" / "nano-tiny"), "--self-test", "false") as server:
        yield server


@pytest.fixture
async def door(nano: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=nano.url, timeout=120) as client:
        yield client


async def asr(door: httpx.AsyncClient, path: Path, **fields: str) -> Any:
    content = await asyncio.to_thread(path.read_bytes)
    response = await door.post("/asr", files={"file": content}, data=fields)
    assert response.status_code == 200, response.text
    return response.json()


def check_words(answer: Any) -> None:
    """The words of a segment are its text, in order, inside it."""
    for segment in answer["segments"]:
        assert "".join(word["word"] for word in segment["words"]) == "".join(segment["text"].split())
        times = [time for word in segment["words"] for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert segment["start"] <= times[0]
        assert times[-1] <= segment["end"] + 0.061  # the last row of 60 ms may reach beyond the sound


async def test_the_doors_agree(nano: Server, door: httpx.AsyncClient) -> None:
    answer = await asr(door, CLIP)
    assert answer["text"]
    async with openai.AsyncOpenAI(base_url=f"{nano.url}/v1", api_key="none", max_retries=0) as client:
        other = await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", CLIP.read_bytes()))
    assert other.text == answer["text"]
    samples, _ = soundfile.read(CLIP, dtype="int16")
    async with websockets.connect(nano.url.replace("http", "ws") + "/ws") as socket:
        await socket.send("START")
        await socket.recv()
        await socket.send(samples.tobytes())
        await socket.send("STOP")
        sentences = json.loads(await socket.recv())["sentences"]
    assert [sentence["text"] for sentence in sentences] == [segment["text"] for segment in answer["segments"]]


async def test_words_where_the_text_fits_the_sound(door: httpx.AsyncClient) -> None:
    answers = [await asr(door, TESTS / "data" / f"{name}.wav") for name in CLIPS]
    with_words = [answer for answer in answers if all("words" in segment for segment in answer["segments"])]
    assert with_words
    without = [answer for answer in answers if answer not in with_words]
    for answer in with_words:
        check_words(answer)
    for answer in without:
        assert any("word times" in warning for warning in answer["warnings"])


async def test_the_prompt_changes_the_text(door: httpx.AsyncClient) -> None:
    texts = [(await asr(door, CLIP, **prompt))["text"] for prompt in PROMPTS]
    assert len(set(texts)) == len(PROMPTS)


async def test_thirty_two_at_once_give_what_each_gives_alone(door: httpx.AsyncClient) -> None:
    jobs = [(TESTS / "data" / f"{name}.wav", prompt) for name, prompt in itertools.product(CLIPS, PROMPTS)]
    assert len(jobs) == 32
    together = await asyncio.gather(*(asr(door, path, **prompt) for path, prompt in jobs))
    for (path, prompt), answer in zip(jobs, together, strict=True):
        alone = await asr(door, path, **prompt)
        assert (answer["text"], answer["segments"]) == (alone["text"], alone["segments"]), (path.stem, prompt)


@pytest.mark.parametrize(
    ("fields", "mentions"),
    [({"language": "sw"}, "language"), ({"hotwords": ",".join(map(str, range(500)))}, "hotword")],
)
async def test_what_the_model_cannot_take(door: httpx.AsyncClient, fields: dict[str, str], mentions: str) -> None:
    response = await door.post("/asr", files={"file": CLIP.read_bytes()}, data=fields)
    assert response.status_code == 400
    assert mentions in response.json()["error"]["message"]


async def test_a_client_that_leaves_frees_the_model(door: httpx.AsyncClient) -> None:
    long = (TESTS / "data" / "nano-29.7s.wav").read_bytes()
    for _ in range(4):
        with pytest.raises(httpx.ReadTimeout):
            await door.post("/asr", files={"file": long}, timeout=0.3)
    async with asyncio.timeout(10):
        await asr(door, CLIP)
