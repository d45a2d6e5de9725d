from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from openai.types.audio import TranscriptionDiarized, TranscriptionTextSegmentEvent
from pydantic import TypeAdapter

from app.formats import formats
from app.formats.asr import asr_answer
from app.formats.events import transcript_events
from app.formats.format import JSON, Asked, json_text
from app.formats.ws import render_ws
from app.text import join_texts
from app.transcript import Segment, Transcript
from engine.recognition import Word


@pytest.fixture
def transcript() -> Transcript:
    words = (Word(" Well,", 1.23449, 1.5), Word("用", 1.5, 2.00051))
    segments = (
        Segment(1.2, 2.1, "Well, 用", words, speaker=0, avg_logprob=float("-inf"), compression_ratio=0.875),
        Segment(3.0, 4.0, "no times", None, speaker=1, language="zh"),
    )
    return Transcript("Well, 用 no times", segments, 4.0004, 0.12345, "zh", ("one segment was cut short",))


def test_all_formats_are_found() -> None:
    assert list(formats()) == ["diarized_json", "json", "srt", "text", "verbose_json", "vtt"]
    assert all(name == each.name for name, each in formats().items())


@pytest.mark.parametrize("asked", [Asked(), Asked(words=True, logprobs=True), Asked(segments=False, task="translate")])
@pytest.mark.parametrize("name", [name for name, each in formats().items() if each.media_type == JSON])
def test_what_is_written_is_what_is_documented(transcript: Transcript, name: str, asked: Asked) -> None:
    """Nothing is missing, of another type, or more than the type of the answer has."""
    answer = formats()[name].answer
    assert answer is not None
    body = formats()[name].render(transcript, asked)
    assert TypeAdapter(answer).validate_json(body, strict=True) == json.loads(body)


def test_verbose_json(transcript: Transcript) -> None:
    body: dict[str, Any] = json.loads(formats()["verbose_json"].render(transcript, Asked(words=True)))
    words = [{"word": "Well,", "start": 1.234, "end": 1.5}, {"word": "用", "start": 1.5, "end": 2.001}]
    first, second = body["segments"]
    assert (body["language"], body["duration"], body["usage"]["seconds"]) == ("chinese", 4.0, 5)
    assert body["warnings"] == ["one segment was cut short"]
    assert body["words"] == first["words"] == words
    assert "words" not in second
    assert (first["speaker"], second["speaker"]) == ("SPK0", "SPK1")
    assert (first["seek"], first["avg_logprob"], first["compression_ratio"]) == (120, 0.0, 0.875)


def test_verbose_json_of_a_translation(transcript: Transcript) -> None:
    body = json.loads(formats()["verbose_json"].render(transcript, Asked(task="translate")))
    assert (body["task"], body["language"]) == ("translate", "english")


def test_diarized_json(transcript: Transcript) -> None:
    """D6, without the speakers themselves: what OpenAI's type demands."""
    body = json.loads(formats()["diarized_json"].render(transcript, Asked()))
    parsed = TranscriptionDiarized.model_validate(body)
    assert (parsed.task, parsed.duration, parsed.text) == ("transcribe", 4.0, "Well, 用 no times")
    assert parsed.usage is not None
    assert parsed.usage.to_dict() == {"type": "duration", "seconds": 5}
    assert body["segments"] == [
        {
            "type": "transcript.text.segment",
            "id": f"seg_{number}",
            "start": segment.start,
            "end": segment.end,
            "text": segment.text,
            "speaker": "AB"[number],
        }
        for number, segment in enumerate(transcript.segments)
    ]
    assert body["warnings"] == ["one segment was cut short"]


def test_json_tells_the_warnings(transcript: Transcript) -> None:
    body = json.loads(formats()["json"].render(transcript, Asked()))
    assert body["warnings"] == ["one segment was cut short"]


async def test_events(transcript: Transcript) -> None:
    async def items() -> AsyncGenerator[Segment | Transcript, None]:
        for segment in transcript.segments:
            yield segment
        yield transcript

    plain = [event async for event in transcript_events(items(), speakers=False)]
    assert plain == [
        {"type": "transcript.text.delta", "delta": "Well, 用"},
        {"type": "transcript.text.delta", "delta": " no times"},
        {
            "type": "transcript.text.done",
            "text": "Well, 用 no times",
            "usage": {"type": "duration", "seconds": 5},
            "warnings": ("one segment was cut short",),
        },
    ]
    told = [event async for event in transcript_events(items(), speakers=True)]
    assert [event["type"] for event in told] == [
        *("transcript.text.delta", "transcript.text.segment") * 2,
        "transcript.text.done",
    ]
    assert [(each["segment_id"], event["id"]) for each, event in zip(told[::2], told[1::2], strict=False)] == [
        ("seg_0", "seg_0"),
        ("seg_1", "seg_1"),
    ]
    for event in told[1:4:2]:
        TranscriptionTextSegmentEvent.model_validate(event)


@pytest.mark.parametrize(
    "texts",
    [
        ["你好。", "世界"],
        ["Hello", "world."],
        ["用", "Python", "写", "代码", "in", "English"],
        [" 好 ", " 好 ", "ok ", " ok"],
        ["สวัสดี", "ครับ", "hi"],
        [],
    ],
)
async def test_the_deltas_add_up(texts: list[str]) -> None:
    """C8 in pieces."""
    segments = tuple(Segment(float(number), number + 1.0, text) for number, text in enumerate(texts))

    async def items() -> AsyncGenerator[Segment | Transcript, None]:
        for segment in segments:
            yield segment
        yield Transcript(join_texts(texts), segments, 9.0, 0.1)

    *deltas, done = [event async for event in transcript_events(items(), speakers=False)]
    assert "".join(event["delta"] for event in deltas) == done["text"] == join_texts(texts)


async def test_events_that_are_closed_early_close_what_they_are_made_of(transcript: Transcript) -> None:
    closed = False

    async def items() -> AsyncGenerator[Segment | Transcript, None]:
        nonlocal closed
        try:
            for segment in transcript.segments:
                yield segment
        finally:
            closed = True

    events = transcript_events(items(), speakers=False)
    await anext(events)
    await events.aclose()
    assert closed


def test_asr(transcript: Transcript) -> None:
    body = json.loads(json_text(asr_answer(transcript, words=True)))
    assert (body["duration"], body["processing_time"], body["rtf"]) == (4.0, 0.123, 0.0309)
    assert body["warnings"] == ["one segment was cut short"]
    assert [segment["speaker"] for segment in body["segments"]] == ["SPK0", "SPK1"]
    assert "words" not in body["segments"][1]


def test_ws(transcript: Transcript) -> None:
    body = json.loads(render_ws(transcript))
    first, second = body["sentences"]
    assert body["duration_ms"] == 4000
    assert (first["start"], first["end"], first["spk"]) == (1200, 2100, 0)
    assert first["words"] == [{"word": "Well,", "start": 1234, "end": 1500}, {"word": "用", "start": 1500, "end": 2001}]
    assert "words" not in second
