"""`diarized_json`: who said what and when."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.formats.format import JSON, Asked, Format, UsageAnswer, json_text, seconds, speaker_label, usage, warned
from app.transcript import Segment, Transcript


class DiarizedSegment(TypedDict):
    """OpenAI's `TranscriptionDiarizedSegment`; seconds."""

    type: Literal["transcript.text.segment"]
    id: str
    start: float
    end: float
    text: str
    speaker: str


class DiarizedAnswer(TypedDict):
    """OpenAI's `TranscriptionDiarized`, with warnings of our own."""

    task: Literal["transcribe"]
    duration: float
    text: str
    segments: list[DiarizedSegment]
    usage: UsageAnswer
    warnings: NotRequired[list[str]]


def render(transcript: Transcript, _: Asked) -> str:
    answer: DiarizedAnswer = {
        "task": "transcribe",
        "duration": seconds(transcript.duration),
        "text": transcript.text,
        "segments": [diarized_segment(number, segment) for number, segment in enumerate(transcript.segments)],
        "usage": usage(transcript),
    }
    return json_text(warned(answer, transcript))


def diarized_segment(number: int, segment: Segment) -> DiarizedSegment:
    """A segment of the answer, which is also an event of a stream."""
    return {
        "type": "transcript.text.segment",
        "id": segment_id(number),
        "start": seconds(segment.start),
        "end": seconds(segment.end),
        "text": segment.text.strip(),
        "speaker": speaker_label(segment),
    }


def segment_id(number: int) -> str:
    """Unique within a transcript."""
    return f"seg_{number}"


FORMAT = Format("diarized_json", JSON, render, speakers=True, streamed=True, answer=DiarizedAnswer)
