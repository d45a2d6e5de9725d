"""Word times corrected by what can be heard: no word begins or ends inside a pause.

Cross-attention tells well where a word is and badly where it begins after a pause: the frames of the pause have to
belong to some token, mostly to the one that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import Span, to_samples
from engine.recognition import Word

_HOP = 0.01
_WINDOW = 0.02
_SHORTEST_PAUSE = 0.1
"""Closures inside words, as before a t, are shorter."""
_ABOVE_FLOOR_DB, _BELOW_PEAK_DB, _NEVER_WITHIN_DB = 6.0, 40.0, 20.0
_OWN_SIDE = 2.0
"""What lies before a pause is the word itself only if it is this much longer than what lies behind."""


def snap_to_speech(words: Sequence[Word], audio: Waveform) -> tuple[Word, ...]:
    """The words of a clip, their ends moved out of the pauses they overlap; order and text stay.

    Args:
        words: with times from the beginning of `audio`, monotonic.
        audio: (samples,) float32.
    """
    pauses = find_pauses(audio)
    snapped: list[Word] = []
    for word in words:
        parts = _speech_in(Span(word.start, word.end), pauses)
        own = _own_part(parts)
        if len(parts) > 1 and own != 0 and snapped and snapped[-1].end == word.start:
            # What is left before the pause is the end of the word before.
            snapped[-1] = replace(snapped[-1], end=parts[own - 1].end)
        snapped.append(replace(word, start=parts[own].start, end=parts[own].end) if parts else word)
    return tuple(snapped)


def find_pauses(audio: Waveform) -> list[Span]:
    """Stretches of at least 100 ms near the noise floor of a clip, in seconds.

    The level is taken in windows of 20 ms every 10 ms. A pause lies within 6 dB of the tenth percentile or 40 dB below
    the loud parts (95th percentile), but never within 20 dB of them.
    """
    level = _levels(audio)
    if not len(level):
        return []
    floor, peak = np.percentile(level, (10, 95))
    quiet = level < min(max(floor + _ABOVE_FLOOR_DB, peak - _BELOW_PEAK_DB), peak - _NEVER_WITHIN_DB)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])))).reshape(-1, 2)
    spans = (Span(float(start * _HOP), float(end * _HOP)) for start, end in edges)
    return [span for span in spans if span.duration >= _SHORTEST_PAUSE - 1e-9]


def _levels(audio: Waveform) -> NDArray[np.float64]:
    hop, window = to_samples(_HOP), to_samples(_WINDOW)
    if len(audio) < window:
        return np.empty(0)
    power = np.concatenate(([0.0], np.cumsum(np.square(audio, dtype=np.float64))))
    starts = np.arange(0, len(audio) - window + 1, hop)
    return np.asarray(10.0 * np.log10((power[starts + window] - power[starts]).clip(0.0) / window + 1e-10))


def _speech_in(span: Span, pauses: Sequence[Span]) -> list[Span]:
    """What is left of a span without the pauses, or nothing if it lies in a pause altogether."""
    parts, start = [], span.start
    for pause in pauses:
        if pause.end <= start or pause.start >= span.end:
            continue
        if pause.start > start:
            parts.append(Span(start, pause.start))
        start = pause.end
    if start < span.end:
        parts.append(Span(start, span.end))
    return parts


def _own_part(parts: Sequence[Span]) -> int:
    """Index of the part of a torn span that is the word: the last, or one that is much longer than all behind it."""
    own = len(parts) - 1
    for number in range(len(parts) - 2, -1, -1):
        if parts[number].duration > _OWN_SIDE * parts[own].duration:
            own = number
    return own
