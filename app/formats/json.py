"""`json`: the text and what it would cost at OpenAI."""

from __future__ import annotations

from app.formats.format import JSON, Asked, Format, json_text, usage, warned
from app.transcript import Transcript


def render(transcript: Transcript, _: Asked) -> str:
    return json_text(warned({"text": transcript.text, "usage": usage(transcript)}, transcript))


FORMAT = Format("json", JSON, render, streamed=True)
