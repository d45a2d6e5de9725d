"""Where a waveform is listened to: overlapping windows inside its spans of speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span, to_samples, to_seconds

WINDOW_SAMPLES = to_samples(1.5)
SHIFT_SAMPLES = to_samples(0.75)


@dataclass(frozen=True, slots=True)
class Window:
    """Samples `first` to `last` (exclusive) of a waveform, at most 1.5 s, inside the span of number `span`."""

    first: int
    last: int
    span: int

    @property
    def start(self) -> float:
        return to_seconds(self.first)

    @property
    def end(self) -> float:
        return to_seconds(self.last)


def windows_of(spans: Sequence[Span], samples: int) -> list[Window]:
    """Windows of 1.5 s every 0.75 s inside every span, in the order of the spans.

    The last window of a span is pulled back so that it is whole; a span below 1.5 s is one shorter window. Spans are
    clamped to the waveform; one that is empty then has no window.

    Args:
        samples: length of the waveform.
    """
    windows = []
    for number, span in enumerate(spans):
        # Truncated to whole samples as the published pipeline does, so that windows are the same to the sample.
        first, last = max(0, int(span.start * SAMPLE_RATE)), min(samples, int(span.end * SAMPLE_RATE))
        end = first
        for start in range(first, last, SHIFT_SAMPLES):
            if end >= last:
                break
            end = min(start + WINDOW_SAMPLES, last)
            windows.append(Window(max(first, end - WINDOW_SAMPLES), end, number))
    return windows


def gather(waveform: Waveform, windows: Sequence[Window]) -> tuple[list[Waveform], list[int]]:
    """What windows hear, every sample once: pieces, and where each window begins in all of them joined.

    A window has WINDOW_SAMPLES there, a shorter one by repetition. Pieces are views of the waveform where they can be.

    Args:
        windows: in order, those of a span together.
    """
    pieces: list[Waveform] = []
    firsts: list[int] = []
    at = 0
    for _, group in groupby(windows, key=lambda window: window.span):
        of_span = list(group)
        first = of_span[0].first
        piece = waveform[first : of_span[-1].last]
        if len(piece) < WINDOW_SAMPLES:
            piece = np.resize(piece, WINDOW_SAMPLES)
        pieces.append(piece)
        firsts += [at + window.first - first for window in of_span]
        at += len(piece)
    return pieces, firsts


def cut(waveform: Waveform, windows: Sequence[Window]) -> NDArray[np.float32]:
    """The samples of windows, (windows, WINDOW_SAMPLES) float32; what is shorter is repeated to that length."""
    batch = np.empty((len(windows), WINDOW_SAMPLES), np.float32)
    for row, window in zip(batch, windows, strict=True):
        row[:] = np.resize(waveform[window.first : window.last], WINDOW_SAMPLES)
    return batch
