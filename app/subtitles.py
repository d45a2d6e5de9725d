"""A transcript as subtitles: cues of at most two lines, cut where words begin, never across a pause.

A line holds 42 characters, or 20 as soon as one of them is as wide as a CJK character.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from app.formats.format import speaker_label
from app.text import is_unspaced
from app.transcript import Segment, Transcript
from engine.recognition import Word

PAUSE_SECONDS = 0.7
"""A cue ends before a silence between two words that lasts so long."""

_LINE, _WIDE_LINE = 42, 20
_SHORTEST_MS = 40
"""A frame of film: the least that a cue is shown, where there is room."""

_SENTENCE_ENDS = tuple(".!?…。！？")
_CLAUSE_ENDS = (*_SENTENCE_ENDS, *",;:，、；：")
_PREFERENCE = 16
"""By how many characters two lines may be less alike if the first then ends with punctuation."""


@dataclass(frozen=True, slots=True)
class Cue:
    """One or two lines and when they are shown, in milliseconds from the beginning of the recording."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: str | None = None


def cues(transcript: Transcript) -> list[Cue]:
    """The cues in order: 0 <= start < end <= the next start, and the last ends within the recording."""
    drafts = [draft for segment in transcript.segments for draft in _drafts(segment)]
    return _placed(drafts, math.floor(transcript.duration * 1000))


def _drafts(segment: Segment) -> Iterator[Cue]:
    """Cues of a segment, at the times of their words."""
    speaker = None if segment.speaker is None else speaker_label(segment)
    for phrase in _phrases(_units(segment)):
        rest = phrase
        while rest:
            count = _cut(rest)
            units, rest = rest[:count], rest[count:]
            yield Cue(round(units[0].start * 1000), round(units[-1].end * 1000), _lines(units), speaker)


def _units(segment: Segment) -> list[Word]:
    """What is never cut: words, with times by their length where the model gives none; each fits on a line."""
    words = segment.words or _guessed(segment)
    clean = (replace(word, text=_clean(word.text)) for word in words)
    return [piece for word in clean if word.text.strip() for piece in _pieces(word)]


def _clean(text: str) -> str:
    """One line without control characters, a space in front if there was one."""
    printable = "".join(" " if character.isspace() else character for character in text)
    printable = "".join(character for character in printable if unicodedata.category(character) != "Cc")
    return (" " if printable[:1] == " " else "") + " ".join(printable.split())


def _guessed(segment: Segment) -> list[Word]:
    return _shared_out(_split(segment.text), segment.start, segment.end)


def _shared_out(texts: Sequence[str], start: float, end: float) -> list[Word]:
    """Words one after the other, each as long as its share of the characters."""
    shares = list(accumulate((len(text.strip()) for text in texts), initial=0))
    seconds = (end - start) / max(1, shares[-1])
    times = [start + share * seconds for share in shares]
    return [Word(text, *span, interpolated=True) for text, span in zip(texts, pairwise(times), strict=True)]


def _split(text: str) -> list[str]:
    """Spelled words with the space before them; single characters of scripts without spaces; punctuation stays."""
    parts: list[str] = []
    for character in text:
        if parts and not _begins(parts[-1][-1], character):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def _begins(before: str, character: str) -> bool:
    """Whether something new begins at `character`."""
    if before.isspace() or character.isspace():
        return not before.isspace()
    if unicodedata.category(before) in ("Ps", "Pi"):
        return False
    kind = unicodedata.category(character)
    if kind in ("Ps", "Pi"):
        return is_unspaced(before) or is_unspaced(character)
    return kind[0] not in "MPS" and kind != "Lm" and (is_unspaced(before) or is_unspaced(character))


def _pieces(word: Word) -> list[Word]:
    """The word, or parts of one that no line can hold."""
    if _fits(word.text.strip()):
        return [word]
    texts = [""]
    for character in word.text:
        if not _fits((texts[-1] + character).strip()):
            texts.append("")
        texts[-1] += character
    return _shared_out(texts, word.start, word.end)


def _phrases(units: Sequence[Word]) -> Iterator[list[Word]]:
    """What is said without a pause."""
    phrase: list[Word] = []
    for unit in units:
        if phrase and unit.start - phrase[-1].end >= PAUSE_SECONDS:
            yield phrase
            phrase = []
        phrase.append(unit)
    if phrase:
        yield phrase


def _cut(units: Sequence[Word]) -> int:
    """How many units make the next cue: all if they fit, else up to the end of a sentence or a clause in its second
    half, else as many as fit, or half of all if that leaves little.
    """
    first = _filling(units)
    most = first + _filling(units[first:])
    if most == len(units):
        return most
    lengths = list(accumulate(len(unit.text) for unit in units))
    half = lengths[most - 1] / 2
    for ends in (_SENTENCE_ENDS, _CLAUSE_ENDS):
        for count in range(most, 0, -1):
            if lengths[count - 1] < half:
                break
            if _closes(units[count - 1], ends):
                return count
    if lengths[-1] - lengths[most - 1] < half:
        return next(count for count in range(1, most + 1) if lengths[count - 1] >= min(half, lengths[-1] / 2))
    return most


def _filling(units: Sequence[Word]) -> int:
    """How many units one line can hold."""
    text = ""
    for count, unit in enumerate(units):
        text += unit.text
        if not _fits(text.strip()):
            return count
    return len(units)


def _fits(text: str) -> bool:
    if len(text) <= _WIDE_LINE:
        return True
    return len(text) <= _LINE and not any(unicodedata.east_asian_width(character) in "WF" for character in text)


def _closes(unit: Word, ends: tuple[str, ...]) -> bool:
    return unit.text.rstrip("\"'”’»）)】」』").endswith(ends)


def _lines(units: Sequence[Word]) -> tuple[str, ...]:
    """One line if it fits, else two of about the same length."""
    whole = _text(units)
    if _fits(whole):
        return (whole,)
    best = math.inf
    lines: tuple[str, ...] = (whole,)
    for count in range(1, len(units)):
        upper, lower = _text(units[:count]), _text(units[count:])
        cost = abs(len(upper) - len(lower)) - _PREFERENCE * _closes(units[count - 1], _CLAUSE_ENDS)
        if cost < best and _fits(upper) and _fits(lower):
            best, lines = cost, (upper, lower)
    return lines


def _text(units: Sequence[Word]) -> str:
    return "".join(unit.text for unit in units).strip()


def _placed(drafts: Sequence[Cue], duration_ms: int) -> list[Cue]:
    """The cues with times that keep the promise of `cues`: pushed on where they are empty or overlap, then back from
    the end of the recording. More cues than milliseconds cannot be shown; the first ones are.
    """
    times: list[list[int]] = []
    clock = 0
    for draft in drafts[:duration_ms]:
        start = max(clock, draft.start_ms)
        clock = max(draft.end_ms, start + _SHORTEST_MS)
        times.append([start, clock])
    limit = duration_ms
    for left, span in zip(range(len(times) - 1, -1, -1), reversed(times), strict=True):
        span[1] = min(span[1], limit)
        limit = span[0] = max(left, min(span[0], span[1] - 1))
    return [replace(draft, start_ms=start, end_ms=end) for draft, (start, end) in zip(drafts, times, strict=False)]


def clock_time(ms: int, mark: str) -> str:
    """`HH:MM:SS`, the mark, and three decimals."""
    seconds, thousandths = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{mark}{thousandths:03}"
