"""Strict readers of subtitles: anything that a player might stumble over is an error."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import pairwise

_SRT_TIMES = re.compile(r"(\d\d):([0-5]\d):([0-5]\d),(\d{3}) --> (\d\d):([0-5]\d):([0-5]\d),(\d{3})")
_VTT_TIMES = re.compile(r"(\d\d):([0-5]\d):([0-5]\d)\.(\d{3}) --> (\d\d):([0-5]\d):([0-5]\d)\.(\d{3})")
_VOICE = re.compile(r"<v ([^>&]+)>")
_ENTITY = re.compile(r"&(?:amp|lt|gt);")


@dataclass(frozen=True)
class ReadCue:
    start: float
    end: float
    lines: tuple[str, ...]
    voice: str | None = None


def read_srt(text: str) -> list[ReadCue]:
    """Blocks of a number that counts from 1, times, lines, and one empty line."""
    cues = []
    for number, block in enumerate(_blocks(text), 1):
        counter, times, *lines = block.split("\n")
        assert counter == str(number)
        cues.append(_cue(_SRT_TIMES, times, lines))
    _check_order(cues)
    return cues


def read_vtt(text: str) -> list[ReadCue]:
    """The header, then blocks of times and lines in which `&`, `<` and `>` are escaped."""
    head, separator, rest = text.partition("\n\n")
    assert (head, separator) == ("WEBVTT", "\n\n")
    cues = []
    for block in _blocks(rest):
        times, *lines = block.split("\n")
        voice = _VOICE.match(lines[0])
        if voice:
            lines[0] = lines[0][voice.end() :]
        for line in lines:
            assert not re.search("[<>&]", _ENTITY.sub("", line)), line
        cue = _cue(_VTT_TIMES, times, [html.unescape(line) for line in lines])
        cues.append(ReadCue(cue.start, cue.end, cue.lines, voice[1] if voice else None))
    _check_order(cues)
    return cues


def check_lines(cues: list[ReadCue]) -> None:
    """At most two lines of 42 Latin or 20 CJK characters."""
    for cue in cues:
        assert len(cue.lines) <= 2
        for line in cue.lines:
            wide = re.search(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff01-\uff60]", line)
            assert len(line) <= (20 if wide else 42), line


def _blocks(text: str) -> list[str]:
    assert "\r" not in text
    if not text:
        return []
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def _cue(pattern: re.Pattern[str], times: str, lines: list[str]) -> ReadCue:
    match = pattern.fullmatch(times)
    assert match, times
    numbers = [int(group) for group in match.groups()]
    start, end = (h * 3600 + m * 60 + s + ms / 1000 for h, m, s, ms in (numbers[:4], numbers[4:]))
    assert lines
    for line in lines:
        assert line == line.strip() != ""
        assert "-->" not in line or pattern is _VTT_TIMES
    return ReadCue(start, end, tuple(lines))


def _check_order(cues: list[ReadCue]) -> None:
    assert all(0 <= cue.start < cue.end for cue in cues)
    assert all(before.end <= after.start for before, after in pairwise(cues))
