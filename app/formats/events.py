"""The events of a transcript that is streamed; they belong to `stream` and are no `response_format`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from app.formats.diarized_json import diarized_segment, segment_id
from app.formats.format import logprob_answers, usage, warned
from app.text import continuation
from app.transcript import Segment, Transcript


async def transcript_events(
    items: AsyncGenerator[Segment | Transcript, None], *, speakers: bool, logprobs: bool = False
) -> AsyncGenerator[dict[str, Any], None]:
    """OpenAI's stream events of what a pipeline puts out: a delta a segment, and at the end all of it.

    The deltas, one after the other, give the text of the transcript. With `speakers` every delta is followed by its
    segment, with `logprobs` deltas and the end hold those of their tokens. `items` are closed with the events.
    """
    last, number = "", 0
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Transcript):
                yield _done(item, logprobs)
                continue
            event: dict[str, Any] = {"type": "transcript.text.delta", "delta": continuation(last, item.text)}
            if speakers:
                event["segment_id"] = segment_id(number)
            if logprobs:
                event["logprobs"] = logprob_answers([item])
            yield event
            if speakers:
                yield dict(diarized_segment(number, item))
            last, number = item.text, number + 1


def _done(transcript: Transcript, logprobs: bool) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "transcript.text.done", "text": transcript.text}
    if logprobs:
        event["logprobs"] = logprob_answers(transcript.segments)
    event["usage"] = usage(transcript)
    return warned(event, transcript)
