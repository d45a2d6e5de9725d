"""Pieces of a text with times become words: one spelled word, or one character of a script that writes no spaces.

Every recogniser that times its tokens ends here, so a word means the same whatever model heard it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from engine.recognition import Word

_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x3007),  # iteration mark, closing mark, zero
    (0x3040, 0x31FF),  # kana, bopomofo and their extensions (Hangul jamo in between is taken out below)
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width kana
    (0x20000, 0x3FFFF),
)
_HANGUL_JAMO = range(0x3130, 0x3190)
_SPOKEN_MARKS = frozenset("#%&*@\\§‰")  # punctuation to Unicode, yet read aloud: they can be words of their own
_JOINERS = frozenset("'’-‐‑_./:·")  # inside a spelled word they hold it together: don't, 3.14, example.com
_TERMINAL = frozenset("。，、！？；：,.!?;:…")


class TimedPiece(NamedTuple):
    """A token of the text: its UTF-8 bytes (perhaps part of a character), and its time in seconds.

    `measured` is false where the time says nothing, for instance a digit that a CTC head knows only as a spelled
    number.
    """

    data: bytes
    start: float
    end: float
    measured: bool = True


class _Character(NamedTuple):
    """A character, or letters of one piece that go together anyway."""

    text: str
    kind: str
    start: float
    end: float
    measured: bool


@dataclass(slots=True)
class _Draft:
    """A word being put together; `start` is None until a measured character with a width arrives."""

    text: str
    spelled: bool
    origin: float
    reach: float
    start: float | None = None
    end: float = 0.0
    open: bool = True
    last: str = ""

    def hear(self, character: _Character) -> None:
        """Take over the time of a character that is pronounced."""
        self.reach = max(self.reach, character.end)
        if character.measured:
            self.start = character.start if self.start is None else min(self.start, character.start)
            self.end = max(self.end, character.end)


@dataclass(slots=True)
class _Merger:
    """Cuts a stream of characters into drafts; `prefix` is what waits for the next word: spaces, opening brackets."""

    drafts: list[_Draft] = field(default_factory=list)
    prefix: str = ""

    def take(self, character: _Character) -> None:
        match character.kind:
            case "space":
                self._space(character.text)
            case "mark":
                self._mark(character.text)
            case "opening":
                self._close()
                self.prefix += character.text
            case "punctuation":
                self._punctuation(character.text)
            case "unspaced":
                self._begin(character, spelled=False)
            case _:
                self._spell(character)

    def finish(self) -> None:
        if self.drafts:
            self.drafts[-1].text += self.prefix
            self.prefix = ""

    def _close(self) -> None:
        if self.drafts:
            self.drafts[-1].open = False

    def _space(self, text: str) -> None:
        """A space ends a word; marks that stood alone between two spaces go to the word before them."""
        self._close()
        if self.drafts and self.prefix.strip():
            self.drafts[-1].text += self.prefix
            self.prefix = ""
        self.prefix += text

    def _mark(self, text: str) -> None:
        """Accents, joiners and variation selectors stay with what they modify."""
        if self.drafts and not self.prefix:
            self.drafts[-1].text += text
        else:
            self.prefix += text

    def _punctuation(self, text: str) -> None:
        if self.prefix and (not self.drafts or not _closes(text)):
            self.prefix += text
        elif self.drafts:
            self.drafts[-1].text += self.prefix + text
            self.drafts[-1].last = text
            self.drafts[-1].open = self.drafts[-1].open and not self.prefix
            self.prefix = ""
        else:
            self.prefix += text

    def _spell(self, character: _Character) -> None:
        if not self.prefix and self.drafts and _continues(self.drafts[-1], character.text):
            self.drafts[-1].text += character.text
            self.drafts[-1].last = character.text[-1]
            self.drafts[-1].hear(character)
        else:
            self._begin(character, spelled=True)

    def _begin(self, character: _Character, *, spelled: bool) -> None:
        self._close()
        draft = _Draft(self.prefix + character.text, spelled, character.start, character.end, last=character.text[-1])
        draft.hear(character)
        self.drafts.append(draft)
        self.prefix = ""


def merge_pieces(pieces: Iterable[TimedPiece]) -> list[Word]:
    """The words of a text from its timed pieces.

    Joined in order the words give exactly the bytes of the pieces, decoded as UTF-8 (broken bytes become U+FFFD). Times
    never run backwards and words never overlap. Punctuation has no width: it belongs to the word before it, opening
    brackets and quotes to the word after. A word without any measured character fills the gap between its neighbours
    and is marked `interpolated`.
    """
    pieces = list(pieces)
    merger = _Merger()
    for character in _characters(pieces):
        merger.take(character)
    merger.finish()
    if merger.prefix:  # nothing but punctuation and spaces
        return [Word(merger.prefix, pieces[0].start, pieces[0].start, interpolated=True)]
    return _timed(merger.drafts)


def is_pronounced(data: bytes) -> bool:
    """Whether a piece may hold more than punctuation and spaces; true for parts of characters."""
    runs = _runs(data)
    return runs is None or any(kind in ("unspaced", "spelled") for _, kind in runs)


def _timed(drafts: Sequence[_Draft]) -> list[Word]:
    """Give every draft its times: its own where it has any, a share of the gap between its neighbours where not."""
    words: list[Word] = []
    clock = 0.0
    index = 0
    while index < len(drafts):
        draft = drafts[index]
        if draft.start is not None:
            start = max(draft.start, clock)
            clock = max(draft.end, start)
            words.append(Word(draft.text, start, clock))
            index += 1
            continue
        stop = index
        while stop < len(drafts) and drafts[stop].start is None:
            stop += 1
        following = drafts[stop].start if stop < len(drafts) else drafts[stop - 1].reach
        left = clock if words else max(0.0, min(draft.origin, following or 0.0))
        words += _share(drafts[index:stop], left, max(left, following or 0.0))
        clock = words[-1].end
        index = stop
    return words


def _share(drafts: Sequence[_Draft], left: float, right: float) -> list[Word]:
    """Divide a gap among words by their number of characters."""
    sizes = [len(draft.text.strip()) or 1 for draft in drafts]
    words, done = [], 0
    for draft, size in zip(drafts, sizes, strict=True):
        start = left + (right - left) * done / sum(sizes)
        done += size
        words.append(Word(draft.text, start, left + (right - left) * done / sum(sizes), interpolated=True))
    return words


def _continues(draft: _Draft, text: str) -> bool:
    """Whether a letter, digit or symbol goes on with the spelled word before it."""
    if not (draft.open and draft.spelled):
        return False
    if _kind(draft.last) != "punctuation" or draft.last in _JOINERS:
        return True
    return draft.last == "," and text.isdigit() and draft.text[-2:-1].isdigit()


def _closes(text: str) -> bool:
    return text in _TERMINAL or unicodedata.category(text) in ("Pe", "Pf")


@lru_cache(maxsize=65536)
def _kind(text: str) -> str:
    """One of: space, mark, opening, punctuation, unspaced, spelled."""
    category, code = unicodedata.category(text), ord(text)
    if text.isspace():
        return "space"
    if category[0] == "M" or category in ("Cf", "Cc", "Sk"):
        return "mark"
    if category in ("Ps", "Pi"):
        return "opening"
    if category[0] == "P" and text not in _SPOKEN_MARKS:
        return "punctuation"
    if code not in _HANGUL_JAMO and any(first <= code <= last for first, last in _UNSPACED_RANGES):
        return "unspaced"
    return "spelled"


def _characters(pieces: Sequence[TimedPiece]) -> Iterable[_Character]:
    """Characters with the time from the first to the last piece that holds a byte of them.

    A piece that holds several characters of an unspaced script is divided evenly among these.
    """
    for group in _whole_characters(pieces):
        runs = _runs(group[0].data) if len(group) == 1 else None
        if runs is None:
            yield from _broken_characters(group)
            continue
        _, start, end, measured = group[0]
        unspaced = sum(kind == "unspaced" for _, kind in runs)
        width = (end - start) / max(unspaced, 1)
        used = 0
        for text, kind in runs:
            if kind == "unspaced" and unspaced > 1:
                yield _Character(text, kind, start + width * used, start + width * (used + 1), measured)
                used += 1
            else:
                yield _Character(text, kind, start, end, measured)


def _whole_characters(pieces: Sequence[TimedPiece]) -> Iterable[Sequence[TimedPiece]]:
    """Pieces cut where no character can go on: in front of those that begin with no continuation byte of UTF-8."""
    first = 0
    for index in range(1, len(pieces) + 1):
        if index == len(pieces) or (pieces[index].data and not 0x80 <= pieces[index].data[0] < 0xC0):
            yield pieces[first:index]
            first = index


@lru_cache(maxsize=65536)
def _runs(data: bytes) -> tuple[tuple[str, str], ...] | None:
    """The characters of a piece with their kinds, letters that follow each other as one; None if it is no UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    runs: list[tuple[str, str]] = []
    for character in text:
        kind = _kind(character)
        if kind == "spelled" and character.isalpha() and runs and runs[-1][1] == "spelled" and runs[-1][0].isalpha():
            runs[-1] = (runs[-1][0] + character, kind)
        else:
            runs.append((character, kind))
    return tuple(runs)


def _broken_characters(pieces: Sequence[TimedPiece]) -> Iterable[_Character]:
    """Characters whose bytes are spread over several pieces, or are no UTF-8 at all."""
    owners = [index for index, piece in enumerate(pieces) for _ in piece.data]
    for text, first, last in _decode(b"".join(piece.data for piece in pieces)):
        holders = pieces[owners[first] : owners[last] + 1]
        measured = all(piece.measured for piece in holders)
        yield _Character(text, _kind(text), holders[0].start, holders[-1].end, measured)


def _decode(data: bytes) -> Iterable[tuple[str, int, int]]:
    """Characters of UTF-8 bytes with the index of their first and last byte; a broken sequence gives one U+FFFD."""
    index = 0
    while index < len(data):
        lead = data[index]
        size = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        try:
            text = data[index : index + size].decode()
        except UnicodeDecodeError as error:
            text, size = "\ufffd", max(1, error.end - error.start)
        yield text, index, index + size - 1
        index += size
