"""Pauses inside spans of speech: speakers mostly change there, and a window across one hears less of anybody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span

_STEP = SAMPLE_RATE // 100
_SMOOTH_STEPS = 5
_LOUD, _QUIET = 95.0, 5.0
"""Percentiles of the level inside a span: its speech and its background."""
_QUIET_SHARE = 0.3
"""A pause is below this share of the way from background to speech, in dB."""
_LEAST_DEPTH_DB = 12.0
"""Less between background and speech is no background: such a span has no pause."""
_SHORTEST_PAUSE = 30
"""Steps of 10 ms: shorter ones belong to the flow of speech."""
_MARGIN = 5
"""Steps of 10 ms left at both ends of the speech, for soft sounds."""
_POWER_FLOOR = 1e-9


def split_at_pauses(waveform: Waveform, spans: Sequence[Span]) -> list[Span]:
    """The same spans without the pauses of at least 0.3 s inside them, in order; beginnings and ends stay.

    Args:
        waveform: (samples,) float32.
        spans: ascending, not overlapping.
    """
    parts: list[Span] = []
    for span in spans:
        start = span.start
        for first, last in _pauses(waveform[span.slice()]):
            parts.append(Span(start, span.start + (first + _MARGIN) / 100))
            start = span.start + (last - _MARGIN) / 100
        parts.append(Span(start, span.end))
    return parts


def _pauses(samples: Waveform) -> list[tuple[int, int]]:
    """First and last (exclusive) steps of 10 ms of every pause, none at an end of the samples."""
    steps = len(samples) // _STEP
    if steps <= 2 * _SHORTEST_PAUSE:
        return []
    power = np.square(samples[: steps * _STEP].reshape(steps, _STEP)).mean(1)
    smooth = np.convolve(power, np.full(_SMOOTH_STEPS, 1 / _SMOOTH_STEPS), "same")
    level: NDArray[np.float32] = 10 * np.log10(smooth + _POWER_FLOOR)
    quiet, loud = np.percentile(level, (_QUIET, _LOUD))
    if loud - quiet < _LEAST_DEPTH_DB:
        return []
    below = level < quiet + _QUIET_SHARE * (loud - quiet)
    edges = np.flatnonzero(np.diff(below, prepend=False, append=False)).tolist()
    return [
        (first, last)
        for first, last in zip(edges[::2], edges[1::2], strict=True)
        if last - first >= _SHORTEST_PAUSE and first > 0 and last < steps
    ]
