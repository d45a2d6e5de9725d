"""Telling a decoder that is stuck in a loop from a speaker who repeats.

A loop is one unit copied back to back, more often than people do. Units are counted in CJK characters and in words, so
that "好好好好好", a laugh, or a refrain sung four times stay what they are. A text that the token limit cut off in
a repeat is a loop with fewer copies: a real refrain ends by itself.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CJK = "\\u2e80-\\u2fdf\\u3005-\\u3007\\u3040-\\u9fff\\uf900-\\ufaff\\U00020000-\\U0003ffff"
_TOKEN = re.compile(f"[{_CJK}]|(?:(?![{_CJK}])[^\\W_])+")
_LONGEST_UNIT = 64  # tokens
_TOLERATED = (5, 23)  # copies that are still speech: of a long unit at most, of a single token at most
_TOLERATED_WHEN_CUT = (3, 11)


@dataclass(frozen=True, slots=True)
class Loop:
    """A repeated stretch of a text as character offsets: the copies after the first are `text[first_end:end]`."""

    start: int
    first_end: int
    end: int
    copies: int


def find_loop(text: str, *, truncated: bool = False) -> Loop | None:
    """The loop with the shortest unit, or None. `truncated` says that the token limit ended the text.

    Case, spaces and punctuation between the copies do not matter. A unit of digits alone is a number being read, unless
    the text was truncated.
    """
    matches = list(_TOKEN.finditer(text))
    ids: dict[str, int] = {}
    codes = np.array([ids.setdefault(match[0].casefold(), len(ids)) for match in matches], np.int64)
    repeated = len(codes) - len(ids)
    for length in range(1, min(_LONGEST_UNIT, len(codes) // 2) + 1):
        fewest = length * _allowed_copies(length, truncated)  # tokens of any loop that are those one unit before
        if repeated < fewest:
            continue
        same = codes[length:] == codes[:-length]
        if np.count_nonzero(same) < fewest:
            continue
        for first, equal in _runs(same):
            copies, unit = equal // length + 1, matches[first : first + length]
            cut_off = truncated and first + length + equal == len(codes)
            if copies <= _allowed_copies(length, cut_off) or (not cut_off and all(m[0].isdigit() for m in unit)):
                continue
            end = len(text) if cut_off else matches[first + copies * length - 1].end()
            return Loop(unit[0].start(), unit[-1].end(), end, copies)
    return None


def cut_loops(text: str, *, truncated: bool = False) -> str:
    """The text with one copy of every loop, and all that follows it; the same text where nothing loops."""
    while loop := find_loop(text, truncated=truncated):
        text = text[: loop.first_end] + text[loop.end :]
    return text


def compression_ratio(text: str) -> float:
    """UTF-8 bytes over their zlib size, as OpenAI's Whisper defines it; repetitive text is above 2.4."""
    data = text.encode(errors="replace")
    return len(data) / len(zlib.compress(data))


def _allowed_copies(length: int, cut_off: bool) -> int:
    """How many copies of a unit of `length` tokens are still taken for speech."""
    floor, single = _TOLERATED_WHEN_CUT if cut_off else _TOLERATED
    return max(floor, single // length)


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and length of every run of true values, the longest first."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    runs = zip(edges[::2].tolist(), (edges[1::2] - edges[::2]).tolist(), strict=True)
    return sorted(runs, key=lambda run: -run[1])
