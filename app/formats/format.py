"""What a response format is, and the pieces that several of them share.

Answers are plain dictionaries, because a long recording has tens of thousands of words; rendering them still takes
time that the event loop does not have (see `rendered`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import to_json
from typing_extensions import TypedDict

from app.attribution import speaker_letter
from app.transcript import Segment, Transcript
from engine.recognition import Task, Word

JSON = "application/json"
PLAIN_TEXT = "text/plain; charset=utf-8"

_SHORT_CHARACTERS = 1000
"""At most as many words, which take two milliseconds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which times and numbers the client asked for, in addition to the text, and what was done to get it."""

    segments: bool = True
    words: bool = False
    logprobs: bool = False
    task: Task = "transcribe"


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a transcript.

    Attributes:
        timed: takes `timestamp_granularities`.
        words: is made of word times, whatever the client asks for.
        speakers: tells speakers apart.
        streamed: can be sent as events.
        logprobs: holds the log probabilities of tokens if they are asked for.
        answer: what it writes, of a format that is JSON.
    """

    name: str
    media_type: str
    render: Callable[[Transcript, Asked], str]
    timed: bool = False
    words: bool = False
    speakers: bool = False
    streamed: bool = False
    logprobs: bool = False
    answer: type | None = None


class WordAnswer(TypedDict):
    """A word without the space around it; seconds."""

    word: str
    start: float
    end: float


class LogprobAnswer(TypedDict):
    """A token as it is written, with "\ufffd" for half a character; its UTF-8 bytes as numbers; base e."""

    token: str
    logprob: float
    bytes: list[int]


class UsageAnswer(TypedDict):
    """What OpenAI would bill: begun seconds of sound."""

    type: Literal["duration"]
    seconds: int


async def rendered(transcript: Transcript, render: Callable[[], str]) -> str:
    """What `render` makes of a transcript: a short one at once, a long one in a thread."""
    return render() if len(transcript.text) <= _SHORT_CHARACTERS else await asyncio.to_thread(render)


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


def logprob_answers(segments: Iterable[Segment]) -> list[LogprobAnswer]:
    """Those of all tokens, in order."""
    return [
        {"token": each.token, "logprob": each.logprob, "bytes": list(each.content)}
        for segment in segments
        for each in segment.logprobs or ()
    ]


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


def warned(answer: Mapping[str, Any], transcript: Transcript) -> dict[str, Any]:
    """The answer, with the warnings if there are some."""
    return {**answer, "warnings": transcript.warnings} if transcript.warnings else dict(answer)
