"""Turns to words: who said which of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from diarization.timeline import SHORT_TURN, SpeakerTurn


class Timed(Protocol):
    """Anything that has a beginning and an end in seconds, such as a word."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Run:
    """Words `first` to `last` (exclusive) of a segment, all of one speaker."""

    first: int
    last: int
    speaker: int


def assign(words: Sequence[Timed], turns: Sequence[SpeakerTurn]) -> list[Run]:
    """Where a segment is to be split, and whose each part is: at the word boundaries nearest the changes.

    A word belongs to the speaker of most of it, one outside all turns to the nearest turn. A part below 0.5 s between
    two of another speaker, cut from a longer turn by the times of its words, joins them: no flicker.

    Args:
        words: in order, with times on the clock of the turns.
        turns: in order, not overlapping.

    Returns:
        Runs that cover the words in order; none where there are no words or no turns.
    """
    if not turns:
        return []
    finder = _Finder(turns)
    speakers = [finder.speaker(word.start, word.end) for word in words]
    return _steady(words, _runs(speakers), turns)


def speaker_of(start: float, end: float, turns: Sequence[SpeakerTurn]) -> int | None:
    """The speaker of the largest part of a stretch, of the nearest turn if nobody speaks in it; None without turns."""
    return _Finder(turns).speaker(start, end) if turns else None


class _Finder:
    """Looks turns up by time; words come in order, so it goes on from where it was."""

    def __init__(self, turns: Sequence[SpeakerTurn]) -> None:
        self._turns = turns
        self._at = 0

    def speaker(self, start: float, end: float) -> int:
        turns = self._turns
        # Word times may step back a little: so does the place.
        while self._at and turns[self._at - 1].end > start:
            self._at -= 1
        while self._at + 1 < len(turns) and turns[self._at].end <= start:
            self._at += 1
        overlaps: dict[int, float] = {}
        for turn in islice(turns, self._at, None):
            if turn.start >= end and turn.start > start:
                break
            overlap = min(end, turn.end) - max(start, turn.start)
            if overlap > 0 or turn.start <= start < turn.end:
                overlaps[turn.speaker] = overlaps.get(turn.speaker, 0.0) + max(overlap, 0.0)
        if overlaps:
            return max(overlaps, key=overlaps.__getitem__)
        near = turns[max(0, self._at - 1) : self._at + 2]
        return min(near, key=lambda turn: max(turn.start - end, start - turn.end)).speaker


def _runs(speakers: Sequence[int]) -> list[Run]:
    runs: list[Run] = []
    for number, speaker in enumerate(speakers):
        if runs and runs[-1].speaker == speaker:
            runs[-1] = Run(runs[-1].first, number + 1, speaker)
        else:
            runs.append(Run(number, number + 1, speaker))
    return runs


def _steady(words: Sequence[Timed], runs: Sequence[Run], turns: Sequence[SpeakerTurn]) -> list[Run]:
    """Runs without flicker: a short one inside another's is a splinter unless a turn of its own lies in it."""
    steady: list[Run] = []
    for number, run in enumerate(runs):
        speaker = run.speaker
        inside = 0 < number < len(runs) - 1 and steady[-1].speaker == runs[number + 1].speaker
        start, end = words[run.first].start, words[run.last - 1].end
        if inside and end - start < SHORT_TURN and not _has_turn(start, end, speaker, turns):
            speaker = steady[-1].speaker
        if steady and steady[-1].speaker == speaker:
            steady[-1] = Run(steady[-1].first, run.last, speaker)
        else:
            steady.append(Run(run.first, run.last, speaker))
    return steady


def _has_turn(start: float, end: float, speaker: int, turns: Sequence[SpeakerTurn]) -> bool:
    """Whether most of a turn of the speaker lies in a stretch: then it was found to be short, and is real."""
    return any(
        min(end, turn.end) - max(start, turn.start) > turn.duration / 2 for turn in turns if turn.speaker == speaker
    )
