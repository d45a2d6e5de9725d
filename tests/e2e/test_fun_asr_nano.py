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

from bench.server import Server, running_fixed_server, running_server

TESTS = Path(__file__).parents[1]
CLIP = TESTS / "data" / "nano-3.1s.wav"
CLIPS = ("goforward", "numbers", "something", "cards-005", "austen-0880", "austen-0930", "nano-3.1s", "nano-0.5s")
PROMPTS: tuple[dict[str, str], ...] = (
    {},
    {"language": "zh"},
    {"hotwords": "开放时间,Tinglu"},
    {"language": "English", "hotwords": "ten meters"},
)


MODEL = str(TESTS / "parity" / "nano-tiny")


@pytest.fixture(scope="module")
def nano() -> Iterator[Server]:
    with running_server("--model", MODEL, "--self-test", "false") as server:
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


def openai_client(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


async def say(server: Server, pcm: bytes) -> Any:
    """The sentences of one round on the socket."""
    async with websockets.connect(server.url.replace("http", "ws") + "/ws") as socket:
        await socket.send("START")
        await socket.recv()
        await socket.send(pcm)
        await socket.send("STOP")
        return json.loads(await socket.recv())["sentences"]


def check_words(answer: Any) -> None:
    """The words of a segment are its text, in order, inside it."""
    for segment in answer["segments"]:
        assert "".join("".join(word["word"] for word in segment["words"]).split()) == "".join(segment["text"].split())
        times = [time for word in segment["words"] for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert segment["start"] <= times[0]
        assert times[-1] <= segment["end"] + 0.061  # the last row of 60 ms may reach beyond the sound


async def test_the_doors_agree(nano: Server, door: httpx.AsyncClient) -> None:
    answer = await asr(door, CLIP)
    assert answer["text"]
    async with openai_client(nano) as client:
        other = await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", CLIP.read_bytes()))
    assert other.text == answer["text"]
    samples, _ = soundfile.read(CLIP, dtype="int16")
    sentences = await say(nano, samples.tobytes())
    assert [sentence["text"] for sentence in sentences] == [segment["text"] for segment in answer["segments"]]


async def test_a_text_that_does_not_fit_its_sound_has_no_words_and_a_warning(door: httpx.AsyncClient) -> None:
    answer = await asr(door, CLIP)
    assert "words" not in answer["segments"][0]
    assert any("word times" in warning for warning in answer["warnings"])


async def test_words_through_every_door() -> None:
    settings = {"model": MODEL, "self_test": "false"}
    samples, _ = soundfile.read(CLIP, dtype="int16")
    with running_fixed_server(settings, module="tests.short_answers") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            answers = [await asr(client, TESTS / "data" / f"{name}.wav") for name in CLIPS]
        async with openai_client(server) as client:
            spoken = await client.audio.transcriptions.create(
                model="whisper-1",
                file=("a.wav", CLIP.read_bytes()),
                response_format="verbose_json",
                timestamp_granularities=["word"],
            )
        (sentence,) = await say(server, samples.tobytes())
    timed = [answer for answer in answers if all("words" in segment for segment in answer["segments"])]
    assert len(timed) > len(CLIPS) / 2
    for answer in answers:  # twelve tokens may still have more characters than a short clip has rows
        if answer in timed:
            check_words(answer)
        else:
            assert any("word times" in warning for warning in answer["warnings"])
    same = answers[CLIPS.index(CLIP.stem)]["segments"][0]["words"]
    assert spoken.words
    assert [word.word for word in spoken.words] == [word["word"] for word in same]
    assert sentence["words"] == [
        {**word, "start": round(word["start"] * 1000), "end": round(word["end"] * 1000)} for word in same
    ]


async def test_the_prompt_changes_the_text(door: httpx.AsyncClient) -> None:
    texts = [(await asr(door, CLIP, **prompt))["text"] for prompt in PROMPTS]
    assert len(set(texts)) == len(PROMPTS)


@pytest.mark.field("E7")
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
