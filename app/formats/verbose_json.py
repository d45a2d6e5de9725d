"""`verbose_json`: text, language, times and the numbers that Whisper gives."""

from __future__ import annotations

import math
from typing import Any

from app.formats.format import (
    JSON,
    Asked,
    Format,
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

_FRAMES_PER_SECOND = 100
_UNKNOWN_LANGUAGE = "unknown"


def render(transcript: Transcript, asked: Asked) -> str:
    """OpenAI's `TranscriptionVerbose`; `words` is left out where the model makes no word times."""
    answer: dict[str, Any] = {
        "task": asked.task,
        "language": _language(transcript, asked),
        "duration": seconds(transcript.duration),
        "text": transcript.text,
    }
    if asked.segments:
        answer["segments"] = [_segment(number, segment, asked) for number, segment in enumerate(transcript.segments)]
    if asked.words and (words := all_words(transcript.segments)) is not None:
        answer["words"] = words
    answer["usage"] = usage(transcript)
    return json_text(warned(answer, transcript))


def _language(transcript: Transcript, asked: Asked) -> str:
    """The name as `whisper-1` gives it; of a translation that is the language of the text."""
    if asked.task == "translate":
        return english_name("en")
    return english_name(transcript.language) if transcript.language else _UNKNOWN_LANGUAGE


def _segment(number: int, segment: Segment, asked: Asked) -> dict[str, Any]:
    """OpenAI's `TranscriptionSegment`, with words and speaker of our own.

    OpenAI's clients require every number, so one that the model does not give is 0. `seek` counts 10 ms frames.
    """
    answer = {
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


FORMAT = Format("verbose_json", JSON, render, timed=True)
