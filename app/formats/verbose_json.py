"""`verbose_json`: text, language, times and the numbers that Whisper gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from app.formats.format import (
    JSON,
    Asked,
    Format,
    UsageAnswer,
    WordAnswer,
    all_words,
    json_text,
    seconds,
    speaker_name,
    usage,
    warned,
    word_answers,
)
from app.languages import english_name
from app.transcript import Segment, Transcript
from engine.recognition import Task

_FRAMES_PER_SECOND = 100
_UNKNOWN_LANGUAGE = "unknown"


class VerboseSegment(TypedDict):
    """OpenAI's `TranscriptionSegment`, with words and speaker of our own.

    Seconds; `seek` counts 10 ms frames. OpenAI's clients require every number, so one that the model does not give
    is 0.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: Sequence[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    speaker: NotRequired[str]
    words: NotRequired[list[WordAnswer]]


class VerboseAnswer(TypedDict):
    """OpenAI's `TranscriptionVerbose`, with warnings of our own.

    `words` is left out where the model makes no word times.
    """

    task: Task
    language: str
    duration: float
    text: str
    segments: NotRequired[list[VerboseSegment]]
    words: NotRequired[list[WordAnswer]]
    usage: UsageAnswer
    warnings: NotRequired[list[str]]


def render(transcript: Transcript, asked: Asked) -> str:
    answer: VerboseAnswer = {
        "task": asked.task,
        "language": _language(transcript, asked),
        "duration": seconds(transcript.duration),
        "text": transcript.text,
        "usage": usage(transcript),
    }
    if asked.segments:
        answer["segments"] = [_segment(number, segment, asked) for number, segment in enumerate(transcript.segments)]
    if asked.words and (words := all_words(transcript.segments)) is not None:
        answer["words"] = words
    return json_text(warned(answer, transcript))


def _language(transcript: Transcript, asked: Asked) -> str:
    """The name as `whisper-1` gives it; of a translation that is the language of the text."""
    if asked.task == "translate":
        return english_name("en")
    return english_name(transcript.language) if transcript.language else _UNKNOWN_LANGUAGE


def _segment(number: int, segment: Segment, asked: Asked) -> VerboseSegment:
    answer: VerboseSegment = {
        "id": number,
        "seek": int(segment.start * _FRAMES_PER_SECOND),
        "start": seconds(segment.start),
        "end": seconds(segment.end),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": _finite(segment.avg_logprob),
        "compression_ratio": _finite(segment.compression_ratio),
        "no_speech_prob": _finite(segment.no_speech_prob),
    }
    if segment.speaker is not None:
        answer["speaker"] = speaker_name(segment.speaker)
    if asked.words and segment.words is not None:
        answer["words"] = word_answers(segment.words)
    return answer


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


FORMAT = Format("verbose_json", JSON, render, timed=True, answer=VerboseAnswer)
