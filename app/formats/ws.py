"""The final message of a round on `/ws`; it belongs to that door and is no `response_format`."""

from __future__ import annotations

from typing import Any

from app.formats.format import json_text
from app.transcript import Segment, Transcript
from engine.recognition import Word


def render_ws(transcript: Transcript) -> str:
    """Sentences with times in whole milliseconds."""
    answer: dict[str, Any] = {
        "sentences": [_sentence(segment) for segment in transcript.segments],
        "is_final": True,
        "duration_ms": _ms(transcript.duration),
    }
    if transcript.warnings:
        answer["warnings"] = transcript.warnings
    return json_text(answer)


def _sentence(segment: Segment) -> dict[str, Any]:
    sentence: dict[str, Any] = {"text": segment.text, "start": _ms(segment.start), "end": _ms(segment.end)}
    if segment.words is not None:
        sentence["words"] = [_word(word) for word in segment.words]
    if segment.speaker is not None:
        sentence["spk"] = segment.speaker
    return sentence


def _word(word: Word) -> dict[str, Any]:
    return {"word": word.text.strip(), "start": _ms(word.start), "end": _ms(word.end)}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
