"""The published clustering that the bench measures against is the reference's: all goldens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audio.span import Span
from bench.published_clustering import in_order, published_labels, published_sentence_speaker, published_turns
from diarization.windows import WINDOW_SAMPLES, cut, gather, windows_of

CLUSTERS = ["two_15_windows", "one_40", "two_60", "four_160", "eight_320", "two_close_120", "three_unequal_100"]


@pytest.mark.parametrize("name", ["short", "edges", "mixed", "vad_like"])
def test_windows_equal_the_goldens(name: str, golden: Mapping[str, Any]) -> None:
    case = golden["windows"][name]
    samples = 1 + max(window[2] + window[3] for window in case["windows"])
    windows = windows_of([Span(*segment) for segment in case["segments"]], samples)
    assert [(window.first, window.last - window.first) for window in windows] == [
        (first, length) for _, _, first, length, _ in case["windows"]
    ]


@pytest.mark.parametrize("name", CLUSTERS)
def test_partitions_equal_the_goldens(
    name: str, golden: Mapping[str, Any], golden_arrays: Mapping[str, NDArray[np.float32]]
) -> None:
    points, case = golden_arrays[f"clusters/{name}"], golden["clusters"][name]
    assert published_labels(points).tolist() == case["labels"]
    assert published_labels(points, merge=np.inf).tolist() == case["labels_before_merge"]
    if case["labels_with_2_requested"] is not None:
        assert published_labels(points, 2).tolist() == case["labels_with_2_requested"]


@pytest.mark.parametrize("name", ["alternating", "short_pieces", "three_speakers"])
def test_timelines_equal_the_goldens(name: str, golden: Mapping[str, Any]) -> None:
    case = golden["timelines"][name]
    windows = windows_of([Span(*segment) for segment in case["segments"]], 16_000 * 60)
    turns = published_turns(windows, in_order(np.array(case["labels"])))
    assert [list(turn) for turn in turns] == case["timeline"]
    speakers = [published_sentence_speaker(turns, start / 1000, end / 1000) for start, end in case["sentences"]]
    assert speakers == case["sentence_speakers"]


def test_windows_are_clamped_to_the_waveform() -> None:
    windows = windows_of([Span(-1.0, 2.0), Span(2.5, 2.5), Span(2.6, 9.0), Span(10.0, 11.0)], 16_000 * 3)
    assert [(window.start, window.end, window.span) for window in windows] == [
        (0.0, 1.5, 0),
        (0.5, 2.0, 0),
        (2.6, 3.0, 2),
    ]


def test_gathered_windows_are_the_cut_ones_with_every_sample_once() -> None:
    waveform = np.arange(160_000, dtype=np.float32)
    windows = windows_of([Span(0.0, 0.5), Span(1.0, 4.3), Span(5.0, 6.5), Span(8.0, 12.0)], len(waveform))
    for first, last in ((0, len(windows)), (2, 6), (3, 4), (0, 1), (0, 0)):
        pieces, begins = gather(waveform, windows[first:last])
        joined = np.concatenate([np.empty(0, np.float32), *pieces])
        rows = [joined[begin : begin + WINDOW_SAMPLES] for begin in begins]
        np.testing.assert_array_equal(np.reshape(rows, (-1, WINDOW_SAMPLES)), cut(waveform, windows[first:last]))
    pieces, _ = gather(waveform, windows)
    assert [len(piece) for piece in pieces] == [WINDOW_SAMPLES, 52_800, WINDOW_SAMPLES, 32_000]
    assert all(np.shares_memory(piece, waveform) for piece in pieces[1:])


def test_short_windows_are_repeated_to_length() -> None:
    waveform = np.arange(48_000, dtype=np.float32)
    batch = cut(waveform, windows_of([Span(0.0, 0.5), Span(1.0, 2.5)], len(waveform)))
    np.testing.assert_array_equal(batch[0], np.tile(np.arange(8000), 3))
    np.testing.assert_array_equal(batch[1], np.arange(16_000, 40_000))
