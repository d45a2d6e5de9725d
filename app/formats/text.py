"""`text`: the bare text."""

from __future__ import annotations

from app.formats.format import PLAIN_TEXT, Asked, Format
from app.transcript import Transcript


def render(transcript: Transcript, _: Asked) -> str:
    return transcript.text


FORMAT = Format("text", PLAIN_TEXT, render, streamed=True)
