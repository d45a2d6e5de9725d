"""Segments to speakers."""

from __future__ import annotations

import pytest

from app.attribution import Attribution, speaker_labels, speaker_letter
from app.text import join_texts
from app.transcript import Segment
from diarization.timeline import SpeakerTurn
from engine.recognition import TokenLogprob, Word


def spoken(text: str, start: float = 0.0, each: float = 1.0, **more: object) -> Segment:
    words = tuple(
        Word(f" {word}" if number else word, start + number * each, start + (number + 1) * each)
        for number, word in enumerate(text.split())
    )
    return Segment(start, start + len(words) * each, text, words, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "letter"), [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (701, "ZZ"), (702, "AAA")])
def test_letters(number: int, letter: str) -> None:
    assert speaker_letter(number) == letter


def test_labels_leave_out_the_letters_that_are_names() -> None:
    assert speaker_labels([None, "agent", None]) == ("A", "agent", "B")
    assert speaker_labels([None, "A", None, "C"]) == ("B", "A", "D", "C")
    assert speaker_labels([]) == ()


@pytest.mark.field("D4")
def test_a_segment_is_split_at_the_word_nearest_the_change() -> None:
    segment = spoken(
        "one two three four", tokens=(1, 2), logprobs=(TokenLogprob("one", b"one", -0.1),), warnings=("loud",)
    )
    turns = [SpeakerTurn(0.0, 2.3, 0), SpeakerTurn(2.3, 4.0, 1)]
    first, second = Attribution(turns, (None, None)).attributed(segment)
    assert (first.text, second.text) == ("one two", "three four")
    assert (first.start, first.end, second.start, second.end) == (0.0, 2.0, 2.0, 4.0)
    assert (first.speaker, first.speaker_label, second.speaker, second.speaker_label) == (0, "A", 1, "B")
    assert second.words is not None
    assert second.words[0] == Word("three", 2.0, 3.0)
    assert join_texts([first.text, second.text]) == segment.text
    assert (first.tokens, second.tokens, second.logprobs, second.warnings) == ((1, 2), (), None, ())


def test_speakers_count_as_they_appear_in_the_text() -> None:
    """The first turn holds no words: its speaker comes into being when he says something."""
    turns = [SpeakerTurn(0.0, 1.0, 0), SpeakerTurn(1.0, 4.0, 1), SpeakerTurn(4.0, 8.0, 0)]
    attribution = Attribution(turns, (None, None))
    labels = [
        (part.speaker, part.speaker_label)
        for segment in (spoken("b", 2.0), spoken("a", 5.0))
        for part in attribution.attributed(segment)
    ]
    assert labels == [(0, "A"), (1, "B")]


def test_known_speakers_keep_their_names_and_letters() -> None:
    turns = [SpeakerTurn(0.0, 1.0, 0), SpeakerTurn(1.0, 2.0, 1), SpeakerTurn(2.0, 3.0, 2)]
    attribution = Attribution(turns, (None, "B", "A"))
    parts = list(attribution.attributed(spoken("x y z")))
    assert [part.speaker_label for part in parts] == ["C", "B", "A"]
    assert [part.speaker for part in parts] == [0, 1, 2]


def test_without_word_times_the_largest_overlap_decides() -> None:
    turns = [SpeakerTurn(0.0, 1.0, 0), SpeakerTurn(1.0, 4.0, 1)]
    (whole,) = Attribution(turns, (None, None)).attributed(Segment(0.0, 4.0, "all of it"))
    assert (whole.speaker_label, whole.text) == ("A", "all of it")
    assert whole.speaker == 0


def test_no_turns_give_no_speaker() -> None:
    segment = spoken("one two")
    assert list(Attribution([], ()).attributed(segment)) == [segment]
