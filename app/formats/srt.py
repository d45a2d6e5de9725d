"""`srt`: SubRip subtitles."""

from __future__ import annotations

from app.formats.format import Asked, Format
from app.subtitles import clock_time, cues
from app.transcript import Transcript


def render(transcript: Transcript, _: Asked) -> str:
    """Numbered cues, each ended by an empty line; the empty text for silence."""
    blocks = []
    for number, cue in enumerate(cues(transcript), 1):
        times = f"{clock_time(cue.start_ms, ',')} --> {clock_time(cue.end_ms, ',')}"
        # SubRip has no way to escape its arrow
        text = "\n".join(cue.lines).replace("-->", "->")
        blocks.append(f"{number}\n{times}\n{text}\n\n")
    return "".join(blocks)


FORMAT = Format("srt", "application/x-subrip; charset=utf-8", render, words=True)
