"""Every format, with every choice of times, whole and streamed, as OpenAI's own client sends and reads it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai
import pytest
from openai.types.audio import (
    Transcription,
    TranscriptionDiarized,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
    Translation,
    TranslationVerbose,
)

from tests.subtitles import read_srt, read_vtt

FORMATS = ("json", "text", "srt", "vtt", "verbose_json", "diarized_json")
GRANULARITIES: tuple[tuple[str, ...] | None, ...] = (None, ("word",), ("segment",), ("word", "segment"))
MEDIA_TYPES = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
TEXT = "number 5. number 5."


@pytest.fixture
async def house(build: Any, new_device: Any) -> AsyncIterator[Any]:
    async with build(new_device(speakers=True)) as house:
        yield house


@pytest.fixture
def sdk(house: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client, max_retries=0)


@pytest.fixture
def file(house: Any) -> Callable[..., Any]:
    return lambda *args: house.recording(*args)["file"]


def refused_field(name: str, granularities: tuple[str, ...] | None, stream: bool) -> str | None:
    """The field that is at fault, if one is."""
    if granularities and name != "verbose_json":
        return "timestamp_granularities"
    return "stream" if stream and name not in ("json", "text", "diarized_json") else None


@pytest.mark.parametrize(
    ("name", "granularities", "stream"), list(itertools.product(FORMATS, GRANULARITIES, (False, True)))
)
async def test_matrix(sdk: Any, file: Any, name: str, granularities: tuple[str, ...] | None, stream: bool) -> None:
    times = {} if granularities is None else {"timestamp_granularities": list(granularities)}
    request = sdk.audio.transcriptions.create(
        model="whisper-1", file=file(5, 2.5), response_format=name, stream=stream, **times
    )
    param = refused_field(name, granularities, stream)
    if param is not None:
        with pytest.raises(openai.BadRequestError) as refused:
            await request
        assert refused.value.param == param
    elif stream:
        check_events([event async for event in await request], speakers=name == "diarized_json")
    else:
        check_answer(name, granularities, await request)


def check_events(events: list[Any], *, speakers: bool) -> None:
    *told, done = events
    deltas = [event for event in told if event.type == "transcript.text.delta"]
    segments = [event for event in told if event.type == "transcript.text.segment"]
    assert [(event.text, event.speaker) for event in segments] == [("number 5.", "A")] * (2 if speakers else 0)
    assert all(isinstance(event, TranscriptionTextDeltaEvent) for event in deltas)
    assert isinstance(done, TranscriptionTextDoneEvent)
    assert [event.delta for event in deltas] == ["number 5.", " number 5."]
    assert done.to_dict() == {
        "type": "transcript.text.done",
        "text": TEXT,
        "usage": {"type": "duration", "seconds": 3},
    }


def check_answer(name: str, granularities: tuple[str, ...] | None, answer: Any) -> None:
    match name:
        case "json":
            assert isinstance(answer, Transcription)
            assert answer.to_dict() == {"text": TEXT, "usage": {"type": "duration", "seconds": 3}}
        case "text":
            assert answer == TEXT
        case "srt":
            assert [(cue.start, cue.end, cue.lines) for cue in read_srt(answer)] == [
                (0.1, 0.9, ("number 5.",)),
                (1.1, 1.9, ("number 5.",)),
            ]
        case "vtt":
            assert [cue.lines for cue in read_vtt(answer)] == [("number 5.",)] * 2
        case "diarized_json":
            assert isinstance(answer, TranscriptionDiarized)
            assert [(segment.text, segment.speaker) for segment in answer.segments] == [("number 5.", "A")] * 2
        case "verbose_json":
            assert isinstance(answer, TranscriptionVerbose)
            TranscriptionVerbose.model_validate(answer.to_dict(), strict=True)
            body = answer.to_dict()
            wanted = granularities or ("segment",)
            assert ("words" in body, "segments" in body) == ("word" in wanted, "segment" in wanted)


@pytest.mark.parametrize("name", MEDIA_TYPES)
async def test_media_types(house: Any, name: str) -> None:
    """E1."""
    answer = await house.client.post(
        "/v1/audio/transcriptions", files=house.recording(5), data={"response_format": name}
    )
    assert answer.headers["content-type"] == MEDIA_TYPES[name]
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("name", ["json", "text"])
async def test_streams_of_silence(sdk: Any, file: Any, name: str) -> None:
    stream = await sdk.audio.transcriptions.create(model="whisper-1", file=file(0), response_format=name, stream=True)
    (done,) = [event async for event in stream]
    assert (done.type, done.text) == ("transcript.text.done", "")


@pytest.mark.parametrize(("name", "body"), [("srt", ""), ("vtt", "WEBVTT\n\n"), ("text", "")])
async def test_silence(sdk: Any, file: Any, name: str, body: str) -> None:
    assert await sdk.audio.transcriptions.create(model="whisper-1", file=file(0), response_format=name) == body


@pytest.mark.filterwarnings("ignore:deprecated")
@pytest.mark.parametrize("name", ["json", "text", "srt", "vtt", "verbose_json"])
async def test_translations(build: Any, new_device: Any, name: str) -> None:
    async with build(new_device(translation=True)) as house:
        sdk = openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client)
        answer: Any = await sdk.audio.translations.create(
            model="whisper-1",
            file=house.recording(5, 2.5)["file"],
            response_format=name,  # type: ignore[call-overload]
            prompt="Numbers",
            temperature=0.5,
            extra_body={"language": "de"},
        )
    (asked,) = house.device.asked
    assert (asked.task, asked.language, asked.temperature, asked.word_timestamps) == ("translate", "de", 0.5, False)
    match name:
        case "json":
            assert isinstance(answer, Translation)
            assert answer.text == TEXT
        case "verbose_json":
            assert isinstance(answer, TranslationVerbose)
            body = answer.to_dict()
            assert (body["task"], body["language"], body["duration"]) == ("translate", "english", 2.5)
            assert [segment["text"] for segment in body["segments"]] == ["number 5."] * 2
            assert "words" not in body
        case "text":
            assert answer == TEXT
        case _:
            cues = {"srt": read_srt, "vtt": read_vtt}[name](answer)
            assert [(cue.start, cue.end) for cue in cues] == [(0.0, 1.0), (1.0, 2.0)]


async def test_translations_that_the_model_does_not_make(house: Any) -> None:
    answer = await house.client.post("/v1/audio/translations", files=house.recording())
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_model", "model")
    assert "whisper-base" in error["message"]


async def test_translations_have_no_speakers(build: Any, new_device: Any) -> None:
    async with build(new_device(translation=True)) as house:
        answer = await house.client.post(
            "/v1/audio/translations", files=house.recording(), data={"response_format": "diarized_json"}
        )
    assert answer.status_code == 400
    assert "json, srt, text, verbose_json, vtt" in answer.json()["error"]["message"]
