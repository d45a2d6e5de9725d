from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from diarization.assignment import Run, assign, speaker_of
from diarization.timeline import SpeakerTurn


@dataclass(frozen=True)
class Word:
    start: float
    end: float


def every(seconds: float, count: int, start: float = 0.0) -> list[Word]:
    edges = [start + seconds * number for number in range(count + 1)]
    return [Word(*pair) for pair in itertools.pairwise(edges)]


@pytest.mark.field("D4")
def test_a_segment_is_split_at_the_word_boundary_nearest_the_change() -> None:
    words = every(0.4, 10)
    for change, boundary in ((1.95, 5), (2.05, 5), (2.19, 5), (2.21, 6), (1.81, 5), (1.79, 4)):
        turns = [SpeakerTurn(0.0, change, 0), SpeakerTurn(change, 4.0, 1)]
        assert assign(words, turns) == [Run(0, boundary, 0), Run(boundary, 10, 1)]


def test_one_speaker_is_one_run() -> None:
    assert assign(every(0.5, 4), [SpeakerTurn(0.0, 2.0, 3)]) == [Run(0, 4, 3)]


def test_nothing_to_assign() -> None:
    assert assign([], [SpeakerTurn(0.0, 1.0, 0)]) == []
    assert assign(every(0.5, 2), []) == []
    assert speaker_of(0.0, 1.0, []) is None


def test_a_splinter_of_a_longer_turn_does_not_flicker() -> None:
    """The second speaker's turn lies mostly in a pause between words: only a short word is cut from it."""
    words = [Word(0.0, 1.0), Word(1.0, 1.2), Word(2.2, 3.0)]
    turns = [SpeakerTurn(0.0, 1.05, 0), SpeakerTurn(1.05, 2.2, 1), SpeakerTurn(2.2, 3.0, 0)]
    assert assign(words, turns) == [Run(0, 3, 0)]


def test_a_real_short_turn_is_kept() -> None:
    words = [Word(0.0, 1.0), Word(1.1, 1.45), Word(1.6, 3.0)]
    turns = [SpeakerTurn(0.0, 1.05, 0), SpeakerTurn(1.05, 1.5, 1), SpeakerTurn(1.5, 3.0, 0)]
    assert assign(words, turns) == [Run(0, 1, 0), Run(1, 2, 1), Run(2, 3, 0)]


def test_words_outside_all_turns_go_to_the_nearest() -> None:
    turns = [SpeakerTurn(1.0, 2.0, 0), SpeakerTurn(5.0, 6.0, 1)]
    words = [Word(0.0, 0.2), Word(2.2, 2.6), Word(4.5, 4.9), Word(8.0, 9.0)]
    assert [speaker_of(word.start, word.end, turns) for word in words] == [0, 0, 1, 1]
    assert assign(words, turns) == [Run(0, 2, 0), Run(2, 4, 1)]


def test_words_without_length_belong_to_where_they_are() -> None:
    turns = [SpeakerTurn(0.0, 1.0, 0), SpeakerTurn(1.0, 2.0, 1)]
    assert assign([Word(0.5, 0.5), Word(1.0, 1.0), Word(1.5, 1.5)], turns) == [Run(0, 1, 0), Run(1, 3, 1)]


def test_a_segment_has_the_speaker_of_the_largest_overlap_in_sum() -> None:
    turns = [SpeakerTurn(0.0, 2.0, 0), SpeakerTurn(2.0, 5.0, 1), SpeakerTurn(5.0, 7.0, 0)]
    assert speaker_of(0.0, 7.0, turns) == 0
    assert speaker_of(1.5, 6.0, turns) == 1


@pytest.mark.parametrize("seed", range(10))
def test_runs_cover_the_words_in_order(seed: int) -> None:
    """Also where word times step back or overlap, and segments are asked in any order."""
    random = np.random.default_rng(seed)
    edges = np.cumsum(random.uniform(0.05, 2.0, 40)).tolist()
    turns = [SpeakerTurn(*pair, int(random.integers(3))) for pair in itertools.pairwise(edges) if random.random() < 0.8]
    starts = np.sort(random.uniform(0, edges[-1], 100)) + random.normal(0, 0.05, 100)
    words = [Word(float(start), float(start + random.uniform(0, 0.5))) for start in starts]
    runs = assign(words, turns)
    assert [run.first for run in runs] == [0, *(run.last for run in runs[:-1])]
    assert runs[-1].last == len(words)
    assert all(one.speaker != other.speaker for one, other in itertools.pairwise(runs))
    for word in words:
        overlaps = dict.fromkeys(range(3), 0.0)
        for turn in turns:
            overlaps[turn.speaker] += max(0.0, min(word.end, turn.end) - max(word.start, turn.start))
        if max(overlaps.values()) > 0:
            found = speaker_of(word.start, word.end, turns)
            assert found is not None
            assert overlaps[found] == pytest.approx(max(overlaps.values()))
