"""The answer of `POST /asr`; it belongs to that door and is no `response_format`."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from app.formats.format import WordAnswer, seconds, speaker_name, word_answers
from app.transcript import Segment, Transcript


class AsrSegment(TypedDict):
    """A segment; seconds."""

    text: str
    start: float
    end: float
    speaker: NotRequired[str]
    words: NotRequired[list[WordAnswer]]


class AsrAnswer(TypedDict):
    """Text and times. `rtf` is processing time by duration, 0 for a recording without sound."""

    text: str
    segments: list[AsrSegment]
    duration: float
    processing_time: float
    rtf: float
    warnings: NotRequired[list[str]]


def asr_answer(transcript: Transcript, *, words: bool) -> AsrAnswer:
    duration, processing = transcript.duration, transcript.processing_seconds
    answer: AsrAnswer = {
        "text": transcript.text,
        "segments": [_segment(segment, words=words) for segment in transcript.segments],
        "duration": seconds(duration),
        "processing_time": seconds(processing),
        "rtf": round(processing / duration, 4) if duration else 0.0,
    }
    if transcript.warnings:
        answer["warnings"] = list(transcript.warnings)
    return answer


def _segment(segment: Segment, *, words: bool) -> AsrSegment:
    answer: AsrSegment = {"text": segment.text, "start": seconds(segment.start), "end": seconds(segment.end)}
    if segment.speaker is not None:
        answer["speaker"] = speaker_name(segment.speaker)
    if words and segment.words is not None:
        answer["words"] = word_answers(segment.words)
    return answer
