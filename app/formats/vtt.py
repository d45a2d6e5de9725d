"""`vtt`: WebVTT subtitles, as the W3C defines them."""

from __future__ import annotations

from app.formats.format import Asked, Format
from app.subtitles import Cue, clock_time, cues
from app.transcript import Transcript

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(transcript: Transcript, _: Asked) -> str:
    """The header, then cues, each ended by an empty line; speakers are voices: `<v A>`."""
    return "WEBVTT\n\n" + "".join(map(_block, cues(transcript)))


def _block(cue: Cue) -> str:
    text = "\n".join(map(_escaped, cue.lines))
    voice = "" if cue.speaker is None else f"<v {_escaped(cue.speaker)}>"
    return f"{clock_time(cue.start_ms, '.')} --> {clock_time(cue.end_ms, '.')}\n{voice}{text}\n\n"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


FORMAT = Format("vtt", "text/vtt; charset=utf-8", render, words=True)
