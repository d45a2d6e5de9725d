"""`json`: the text, what it would cost at OpenAI, and how sure the model is if that is asked for."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from app.formats.format import (
    JSON,
    Asked,
    Format,
    LogprobAnswer,
    UsageAnswer,
    json_text,
    logprob_answers,
    usage,
    warned,
)
from app.transcript import Transcript


class JsonAnswer(TypedDict):
    """OpenAI's `Transcription`, with warnings of our own."""

    text: str
    logprobs: NotRequired[list[LogprobAnswer]]
    usage: UsageAnswer
    warnings: NotRequired[list[str]]


def render(transcript: Transcript, asked: Asked) -> str:
    answer: JsonAnswer = {"text": transcript.text, "usage": usage(transcript)}
    if asked.logprobs:
        answer["logprobs"] = logprob_answers(transcript.segments)
    return json_text(warned(answer, transcript))


FORMAT = Format("json", JSON, render, streamed=True, logprobs=True, answer=JsonAnswer)
