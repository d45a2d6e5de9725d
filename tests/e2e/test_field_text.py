"""Silence, long speech, times and formats of the field, against a real model."""

from __future__ import annotations

import asyncio
import io
import itertools
import re
import unicodedata
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile

from bench.recordings import normalise, recordings, word_error_rate
from bench.server import Server
from tests import compositions
from tests.subtitles import check_lines, read_srt, read_vtt

DOOR = "/v1/audio/transcriptions"
ONSET = 0.46
"""Where the sound of "go" rises in its recording, in seconds."""


def wav(samples: Any) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, 16_000, format="WAV", subtype="PCM_16")
    return out.getvalue()


async def hear(client: httpx.AsyncClient, samples: Any, **fields: str) -> Any:
    answer = await client.post("/asr", files={"file": wav(samples)}, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def clips(client: httpx.AsyncClient) -> float:
    """How many clips the recogniser has taken since it was started; the device tells every second."""
    await asyncio.sleep(2.2)
    lines = (await client.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith("tinglu_device_counts_total{") and 'of="clips"' in line]
    return float(line.rpartition(" ")[2])


SILENT = {
    "zeros": lambda: np.zeros(160_000),
    "noise at -60 dBFS": lambda: np.random.default_rng(0).normal(0, 1e-3, 160_000),
    "mains hum": lambda: 0.1 * np.sin(2 * np.pi * 50 * np.arange(160_000) / 16_000),
}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, marks=pytest.mark.field("B1"), id="plain"),
        pytest.param({"hotwords": "Tinglu,meters", "language": "en"}, marks=pytest.mark.field("B2"), id="prompted"),
    ],
)
async def test_silence_says_nothing_and_costs_nothing(client: httpx.AsyncClient, fields: dict[str, str]) -> None:
    before = await clips(client)
    for name, sound in SILENT.items():
        answer = await hear(client, sound(), **fields)
        assert (answer["text"], answer["segments"]) == ("", []), name
        verbose = await client.post(
            DOOR,
            files={"file": wav(sound())},
            data={"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"], **fields},
        )
        body = verbose.json()
        assert (body["text"], body["segments"], body["words"]) == ("", [], []), name
    assert await clips(client) == before


@pytest.mark.field("B4")
async def test_the_same_again_gives_the_same(client: httpx.AsyncClient) -> None:
    first, again = [await hear(client, compositions.recording("austen-0890")) for _ in range(2)]
    assert first["text"]
    assert (first["text"], first["segments"]) == (again["text"], again["segments"])


def trimmed(samples: compositions.Samples) -> compositions.Samples:
    """Without what is quieter than a twentieth of the loudest at both ends."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > np.abs(samples).max() * 0.05)
    return samples[loud[0] : loud[-1]]


@pytest.mark.field("B7")
async def test_speech_without_a_pause_loses_and_doubles_nothing(client: httpx.AsyncClient) -> None:
    """65 s and more, of which no model takes all at once: it is cut somewhere inside of the speech."""
    read = [file for file in recordings() if file.path.stem.startswith("austen")]
    told = [file for file, _ in zip(itertools.cycle(read), range(15), strict=False)]
    samples = np.concatenate([trimmed(compositions.recording(file.path.stem)) for file in told])
    assert 65 < len(samples) / 16_000 < 75
    answer = await hear(client, samples, silence_ms="5000")
    segments = answer["segments"]
    assert len(segments) >= 3
    for before, after in itertools.pairwise(segments):
        assert before["end"] == pytest.approx(after["start"], abs=1e-3)
    assert word_error_rate([" ".join(file.text for file in told)], [answer["text"]]) <= 0.05
    assert "warnings" not in answer


@pytest.mark.field("C1")
async def test_words_at_5_and_35_and_65_seconds(client: httpx.AsyncClient) -> None:
    samples = np.zeros(70 * 16_000, np.int16)
    command = compositions.recording("goforward")
    for second in (5, 35, 65):
        first = round((second - ONSET) * 16_000)
        samples[first : first + len(command)] = command
    answer = await hear(client, samples)
    words = [word for segment in answer["segments"] for word in segment["words"]]
    starts = [word["start"] for word in words if normalise(word["word"]) == "go"]
    assert starts == pytest.approx([5, 35, 65], abs=0.08)
    times = [time for word in words for time in (word["start"], word["end"])]
    assert times == sorted(times)


@pytest.mark.field("C3")
async def test_digits_and_symbols_have_times(client: httpx.AsyncClient) -> None:
    """Whisper writes numbers and punctuation that nobody pronounced so."""
    answer = await hear(client, compositions.joined(60.0))
    assert re.search(r"\d", answer["text"])
    for segment in answer["segments"]:
        assert "".join("".join(word["word"] for word in segment["words"]).split()) == "".join(segment["text"].split())
        times = [time for word in segment["words"] for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert segment["start"] <= times[0] <= times[-1] <= segment["end"] + 0.001


@pytest.mark.field("C4")
async def test_a_full_stop_before_a_pause_belongs_to_its_word(client: httpx.AsyncClient) -> None:
    """Two seconds of the recording's own noise after "meters.", in one segment."""
    command = compositions.recording("goforward")
    hush = np.tile(command[-3200:], 10)
    both = np.concatenate([command, hush, command])
    answer = await hear(client, both, silence_ms="5000")
    (segment,) = answer["segments"]
    (stop, _) = [word for word in segment["words"] if word["word"] == "meters."]
    assert stop["end"] < 2.2


@pytest.mark.field("C6")
async def test_subtitles_of_half_a_minute(client: httpx.AsyncClient) -> None:
    content = wav(compositions.recording("nano-29.7s"))
    for name, read in (("srt", read_srt), ("vtt", read_vtt)):
        answer = await client.post(DOOR, files={"file": content}, data={"response_format": name})
        cues = read(answer.text)
        check_lines(cues)
        assert len(cues) >= 7
        assert cues[-1].end <= 29.7


@pytest.mark.field("C7")
@pytest.mark.parametrize("brackets", ["", "[]"])
@pytest.mark.parametrize("asked", [[], ["word"], ["segment"], ["word", "segment"]])
async def test_granularities(client: httpx.AsyncClient, asked: list[str], brackets: str) -> None:
    answer = await client.post(
        DOOR,
        files={"file": wav(compositions.recording("goforward"))},
        data={"response_format": "verbose_json", f"timestamp_granularities{brackets}": asked},
    )
    body = answer.json()
    assert ("segments" in body) == (asked != ["word"])
    assert ("words" in body) == ("word" in asked)
    if "word" in asked:
        assert normalise(" ".join(word["word"] for word in body["words"])) == normalise(body["text"])
    if "segments" in body:
        assert " ".join(segment["text"] for segment in body["segments"]) == body["text"]


def is_cjk(character: str) -> bool:
    return "CJK" in unicodedata.name(character, "")


@pytest.mark.field("C8")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_segments_are_joined_as_their_script_wants(client: httpx.AsyncClient, language: str) -> None:
    """Whisper writes Chinese of what it was told is Chinese, whatever that may mean, and English words between."""
    both = [compositions.recording("jfk"), compositions.silence(3), compositions.recording("austen-0870")]
    answer = await hear(client, np.concatenate(both), language=language)
    texts = [segment["text"] for segment in answer["segments"]]
    assert len(texts) > 1
    assert any(map(is_cjk, answer["text"])) == (language == "zh")
    joined = texts[0]
    for before, text in itertools.pairwise(texts):
        joined += text if is_cjk(before[-1]) and is_cjk(text[0]) else f" {text}"
    assert answer["text"] == joined


@pytest.mark.field("E1")
async def test_bare_text(client: httpx.AsyncClient) -> None:
    content = wav(compositions.recording("goforward"))
    answer = await client.post(DOOR, files={"file": content}, data={"response_format": "text"})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert normalise(answer.text) == "go forward ten meters"
    assert answer.text == (await hear(client, compositions.recording("goforward")))["text"]


FORMATS = ("json", "text", "srt", "vtt", "verbose_json", "diarized_json")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("granularities", [None, ["word"], ["segment"], ["word", "segment"]], ids=str)
@pytest.mark.parametrize("name", FORMATS)
async def test_formats_and_granularities_and_stream(
    server: Server, name: str, granularities: list[str] | None, stream: bool
) -> None:
    """What OpenAI's client makes of each, over the wire: the text, or a refusal that names the field at fault."""
    fields: dict[str, Any] = {} if granularities is None else {"timestamp_granularities": granularities}
    file = ("a.wav", wav(compositions.recording("goforward")))
    param = "timestamp_granularities" if granularities and name != "verbose_json" else None
    if param is None and stream and name not in ("json", "text", "diarized_json"):
        param = "stream"
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as sdk:
        create: Any = sdk.audio.transcriptions.create
        asked = create(model="whisper-1", file=file, response_format=name, stream=stream, **fields)
        if param:
            with pytest.raises(openai.BadRequestError) as refused:
                await asked
            assert refused.value.param == param
            return
        answer = await asked
        if stream:
            events = [event async for event in answer]
            assert events[-1].type == "transcript.text.done"
            text = "".join(event.delta for event in events if event.type == "transcript.text.delta")
            assert events[-1].text == text
        elif name == "vtt":
            text = " ".join(line for cue in read_vtt(answer) for line in cue.lines)
        elif name == "srt":
            text = " ".join(line for cue in read_srt(answer) for line in cue.lines)
        else:
            text = answer if isinstance(answer, str) else answer.text
    assert normalise(text) == "go forward ten meters"


async def test_logprobs(server: Server) -> None:
    """The tokens are the text, each with a probability, whole or in a stream."""
    file = ("a.wav", wav(compositions.recording("goforward")))
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as sdk:
        create: Any = sdk.audio.transcriptions.create
        whole = await create(model="whisper-1", file=file, include=["logprobs"])
        stream = await create(model="whisper-1", file=file, include=["logprobs"], stream=True)
        events = [event async for event in stream]
    spelled = b"".join(bytes(int(byte) for byte in each.bytes) for each in whole.logprobs).decode()
    assert spelled.strip() == whole.text
    assert all(each.logprob <= 0 for each in whole.logprobs)
    assert [each.to_dict() for each in events[-1].logprobs] == [each.to_dict() for each in whole.logprobs]
    told = [each.to_dict() for event in events[:-1] for each in event.logprobs]
    assert told == [each.to_dict() for each in whole.logprobs]
