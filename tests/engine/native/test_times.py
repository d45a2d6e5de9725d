from __future__ import annotations

import itertools

import numpy as np
import pytest

from audio.span import SAMPLE_RATE
from engine.native.call import quietest_sample
from engine.native.dtw import first_frames
from engine.native.pauses import find_pauses, snap_to_speech
from engine.recognition import Word


def _best_by_trying(similarity: np.ndarray) -> float:  # type: ignore[type-arg]
    """The highest sum over all monotonic paths from corner to corner."""
    best = np.full(similarity.shape, -np.inf)
    for i, j in itertools.product(*map(range, similarity.shape)):
        before = [best[a, b] for a, b in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if a >= 0 and b >= 0]
        best[i, j] = similarity[i, j] + max(before, default=0.0)
    return float(best[-1, -1])


def test_rows_begin_where_their_block_begins() -> None:
    similarity = np.full((4, 20), -1.0, np.float32)
    for row, (start, end) in enumerate(((0, 3), (3, 9), (9, 10), (10, 20))):
        similarity[row, start:end] = 1.0
    assert first_frames(similarity).tolist() == [0, 3, 9, 10]


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (3, 9), (9, 3)])
def test_any_shape_gives_a_monotonic_path_from_the_first_frame(shape: tuple[int, int]) -> None:
    frames = first_frames(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    assert frames[0] == 0
    assert (np.diff(frames) >= 0).all()
    assert frames[-1] < shape[1]


def test_the_path_is_the_best_one() -> None:
    # All similarities are negative, so that the best path does not wander, and it can be rebuilt from its beginnings.
    for seed in range(20):
        similarity = -np.random.default_rng(seed).random((4, 8)).astype(np.float32) - 1.0
        frames = [*first_frames(similarity).tolist(), 8]
        ends = [max(frames[i], frames[i + 1] - 1) for i in range(4)]
        candidates = itertools.product(*[{end, min(end + 1, 7)} for end in ends[:-1]])
        sums = []
        for inner in candidates:
            last = [*inner, 7]
            if all(last[i] in (frames[i + 1], frames[i + 1] - 1) for i in range(3)):
                sums.append(sum(float(similarity[i, frames[i] : last[i] + 1].sum()) for i in range(4)))
        assert max(sums) == pytest.approx(_best_by_trying(similarity), abs=1e-5)


def _sound(*parts: tuple[float, float]) -> np.ndarray:  # type: ignore[type-arg]
    """Noise: parts of seconds and amplitude."""
    random = np.random.default_rng(0)
    pieces = [random.normal(0.0, level, round(seconds * SAMPLE_RATE)) for seconds, level in parts]
    return np.concatenate(pieces).astype(np.float32)


def test_pauses_are_where_the_sound_is_faint() -> None:
    audio = _sound((0.3, 1e-3), (0.5, 0.1), (0.05, 1e-3), (0.5, 0.1), (0.4, 1e-3), (0.5, 0.1))
    spans = [(round(span.start, 1), round(span.end, 1)) for span in find_pauses(audio)]
    assert spans in ([(0.0, 0.3), (1.3, 1.8)], [(0.0, 0.3), (1.4, 1.8)], [(0.0, 0.3), (1.4, 1.7)])
    assert find_pauses(audio[:10]) == []
    assert find_pauses(_sound((2.0, 0.1))) == []


def test_words_leave_pauses_and_give_back_the_end_of_the_word_before() -> None:
    audio = _sound((0.5, 1e-3), (1.0, 0.1), (1.0, 1e-3), (1.0, 0.1), (0.5, 1e-3))
    words = [Word("one", 0.0, 1.3), Word(" two", 1.3, 3.0), Word(" three", 3.0, 4.0)]
    first, second, third = snap_to_speech(words, audio)
    assert (first.start, first.end) == pytest.approx((0.5, 1.5), abs=0.03)
    assert (second.start, second.end) == pytest.approx((2.5, 3.0), abs=0.03)
    assert (third.start, third.end) == pytest.approx((3.0, 3.5), abs=0.03)


def test_a_word_that_lies_in_silence_keeps_its_time() -> None:
    audio = _sound((1.0, 0.1), (1.0, 1e-3))
    words = [Word("far", 1.3, 1.6)]
    assert snap_to_speech(words, audio) == tuple(words)
    assert snap_to_speech([], audio) == ()


def test_the_quietest_point_is_found_in_the_middle_third() -> None:
    audio = _sound((0.8, 0.1), (0.1, 0.0), (0.7, 0.1), (0.2, 1e-3), (1.2, 0.1))
    assert quietest_sample(audio) / SAMPLE_RATE == pytest.approx(1.7, abs=0.06)
    assert quietest_sample(np.zeros(3, np.float32)) in (1, 2)
