"""One recording through every door, as its users would send it."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
import websockets

from bench.recordings import DATA, normalise, recordings, word_error_rate
from bench.server import Server

KENNEDY = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."


async def asr(client: httpx.AsyncClient, content: bytes, **fields: str) -> Any:
    response = await client.post("/asr", files={"file": content}, data=fields)
    assert response.status_code == 200, response.text
    return response.json()


def kennedy() -> bytes:
    return (DATA / "jfk.wav").read_bytes()


def openai_client(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300)


def check_words(words: list[dict[str, Any]], start: float, end: float) -> None:
    """Words lie in their segment, one after the other."""
    assert words
    times = [time for word in words for time in (word["start"], word["end"])]
    assert times == sorted(times)
    assert start <= times[0]
    assert times[-1] <= end


async def test_asr_gives_the_text_and_the_time_of_every_word(client: httpx.AsyncClient) -> None:
    answer = await asr(client, kennedy())
    assert answer["text"] == KENNEDY
    assert answer["duration"] == 11.0
    assert answer["processing_time"] > 0
    (segment,) = answer["segments"]
    assert segment["text"] == KENNEDY
    assert [word["word"] for word in segment["words"]] == KENNEDY.split()
    check_words(segment["words"], segment["start"], segment["end"])


async def test_asr_without_times(client: httpx.AsyncClient) -> None:
    answer = await asr(client, kennedy(), timestamp="false", language="English")
    assert answer["text"] == KENNEDY
    assert "words" not in answer["segments"][0]


async def test_published_transcripts(client: httpx.AsyncClient) -> None:
    files = [file for file in recordings() if file.path.stem.startswith("austen")]
    answers = await asyncio.gather(*(asr(client, file.path.read_bytes()) for file in files))
    assert len(files) == 5
    assert word_error_rate([file.text for file in files], [answer["text"] for answer in answers]) <= 0.03


async def test_openai_json(server: Server) -> None:
    async with openai_client(server) as client:
        answer = await client.audio.transcriptions.create(model="whisper-1", file=("jfk.wav", kennedy()))
    assert answer.text == KENNEDY


async def test_openai_text(server: Server) -> None:
    async with openai_client(server) as client:
        answer: Any = await client.audio.transcriptions.create(
            model="whisper-base", file=("jfk.wav", kennedy()), response_format="text"
        )
    assert str(answer).strip() == KENNEDY


async def test_openai_verbose_json(server: Server) -> None:
    async with openai_client(server) as client:
        answer = await client.audio.transcriptions.create(
            model="whisper-1",
            file=("jfk.wav", kennedy()),
            language="en",
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
    assert answer.text == KENNEDY
    assert answer.language == "english"
    assert float(answer.duration) == 11.0
    assert answer.words
    assert [word.word for word in answer.words] == KENNEDY.split()
    assert answer.segments
    assert answer.segments[0].avg_logprob > -1


@pytest.mark.field("E23")
async def test_openai_models(server: Server) -> None:
    async with openai_client(server) as client:
        names = [model.id async for model in await client.models.list()]
        assert "whisper-base" in names
        with pytest.raises(openai.NotFoundError):
            await client.audio.transcriptions.create(model="gpt-9", file=("jfk.wav", kennedy()))


async def test_socket_several_rounds(server: Server) -> None:
    samples, _ = soundfile.read(DATA / "jfk.wav", dtype="int16")
    pcm = samples.tobytes()
    async with websockets.connect(server.url.replace("http", "ws") + "/ws") as socket:
        for text, sound in ((KENNEDY, pcm), ("", bytes(32_000)), (KENNEDY, pcm)):
            await socket.send("START")
            assert json.loads(await socket.recv()) == {"event": "started"}
            await socket.send("LANGUAGE:en")
            assert json.loads(await socket.recv()) == {"event": "language_set", "language": "en"}
            for start in range(0, len(sound), 9_999):
                await socket.send(sound[start : start + 9_999])
            await socket.send("STOP")
            answer = json.loads(await socket.recv())
            assert answer["is_final"] is True
            assert answer["duration_ms"] == len(sound) / 32
            assert " ".join(sentence["text"] for sentence in answer["sentences"]) == text
            for sentence in answer["sentences"]:
                check_words(sentence["words"], sentence["start"], sentence["end"])
            assert json.loads(await socket.recv()) == {"event": "stopped"}


async def test_a_composition_comes_back_in_order(client: httpx.AsyncClient) -> None:
    """90 s: recordings with silences between them, some long enough to end a segment."""
    order = [file for file in recordings() if file.path.stem != "goforward"]
    gaps = itertools.cycle((3.0, 0.4, 6.0))
    parts: list[Any] = []
    texts: list[str] = []
    while sum(map(len, parts)) < 80 * 16_000:
        file = order[len(texts) % len(order)]
        parts += [soundfile.read(file.path, dtype="int16")[0], np.zeros(round(next(gaps) * 16_000), np.int16)]
        texts.append(file.text)
    out = io.BytesIO()
    soundfile.write(out, np.concatenate(parts), 16_000, format="WAV")
    answer = await asr(client, out.getvalue())
    segments = answer["segments"]
    assert len(segments) >= 5
    assert [segment["start"] for segment in segments] == sorted(segment["start"] for segment in segments)
    for before, after in itertools.pairwise(segments):
        assert before["end"] <= after["start"]
    for segment in segments:
        check_words(segment["words"], segment["start"], segment["end"])
    assert word_error_rate([" ".join(texts)], [answer["text"]]) <= 0.05
    assert normalise(answer["text"]) == normalise(" ".join(segment["text"] for segment in segments))


@pytest.mark.field("E7")
async def test_sixteen_files_at_once_get_their_own_answers(client: httpx.AsyncClient) -> None:
    files = recordings() * 2
    answers = await asyncio.gather(*(asr(client, file.path.read_bytes()) for file in files))
    alone = {file.path: await asr(client, file.path.read_bytes()) for file in recordings()}
    for file, answer in zip(files, answers, strict=True):
        for name in ("text", "segments", "duration"):
            assert answer[name] == alone[file.path][name], file.path.stem


async def test_health_answers_while_the_model_works(client: httpx.AsyncClient) -> None:
    work = asyncio.gather(*(asr(client, kennedy()) for _ in range(3)))
    answers = []
    while not work.done():
        answers.append((await client.get("/health")).json()["status"])
        await asyncio.sleep(0.05)
    await work
    assert len(answers) > 3
    assert set(answers) == {"ok"}
