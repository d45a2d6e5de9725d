"""What a response format is, and the pieces that several of them share.

Answers are plain dictionaries, because a long recording has tens of thousands of words; rendering them still takes
time that the event loop does not have, and belongs in a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import to_json
from typing_extensions import TypedDict

from app.attribution import speaker_letter
from app.transcript import Segment, Transcript
from engine.recognition import Task, Word

JSON = "application/json"
PLAIN_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which times the client asked for, in addition to the text, and what was done to get it."""

    segments: bool = True
    words: bool = False
    task: Task = "transcribe"


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a transcript.

    Attributes:
        timed: takes `timestamp_granularities`.
        words: is made of word times, whatever the client asks for.
        speakers: tells speakers apart.
        streamed: can be sent as events.
    """

    name: str
    media_type: str
    render: Callable[[Transcript, Asked], str]
    timed: bool = False
    words: bool = False
    speakers: bool = False
    streamed: bool = False


class WordAnswer(TypedDict):
    """A word without the space around it; seconds."""

    word: str
    start: float
    end: float


class UsageAnswer(TypedDict):
    """What OpenAI would bill: begun seconds of sound."""

    type: Literal["duration"]
    seconds: int


def json_text(answer: Mapping[str, Any]) -> str:
    """Compact JSON; numbers that JSON does not have become null."""
    return to_json(answer).decode()


def seconds(value: float) -> float:
    """Times on the wire have three decimals."""
    return round(float(value), 3)


def usage(transcript: Transcript) -> UsageAnswer:
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


def word_answers(words: Sequence[Word]) -> list[WordAnswer]:
    return [{"word": word.text.strip(), "start": seconds(word.start), "end": seconds(word.end)} for word in words]


def all_words(segments: Sequence[Segment]) -> list[WordAnswer] | None:
    """The words of all segments that have times; None where there is speech and none has."""
    timed = [segment.words for segment in segments if segment.words is not None]
    if segments and not timed:
        return None
    return [answer for words in timed for answer in word_answers(words)]


def speaker_name(speaker: int) -> str:
    return f"SPK{speaker}"


def speaker_label(segment: Segment) -> str:
    """The label that OpenAI gives: the name of a known speaker, A to Z, then AA, AB ... for others."""
    return segment.speaker_label or speaker_letter(segment.speaker or 0)


def warned(answer: dict[str, Any], transcript: Transcript) -> dict[str, Any]:
    """The answer, with the warnings if there are some."""
    return answer | {"warnings": transcript.warnings} if transcript.warnings else answer
