from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from engine.packed import PackedWords
from engine.recognition import Hypothesis, Word

WORDS = (Word("One,", 0.06, 0.3), Word(" 二", 0.3, 0.42, interpolated=True), Word("\U0001f600", 0.42, 0.42))


def test_packed_words_are_the_words() -> None:
    packed = PackedWords.of(WORDS)
    assert packed == WORDS
    assert tuple(packed) == WORDS
    assert packed == PackedWords.of(WORDS)
    assert packed != PackedWords.of(WORDS[:2])
    assert packed != WORDS[:2]
    assert packed != "One"
    assert hash(packed) == hash(WORDS)
    assert len(packed) == 3
    assert [word.interpolated for word in packed] == [False, True, False]
    assert packed[1] == WORDS[1]
    assert packed[-2:] == WORDS[-2:]
    with pytest.raises(IndexError):
        packed[3]
    assert "One," in repr(packed)
    assert not PackedWords.of(())


def test_they_travel_inside_a_hypothesis() -> None:
    there = Hypothesis(0, "One, 二\U0001f600", PackedWords.of(WORDS))
    back = pickle.loads(pickle.dumps(there, pickle.HIGHEST_PROTOCOL))
    assert back == there
    assert back == replace(there, words=PackedWords.of(WORDS))
    assert tuple(back.words) == WORDS
