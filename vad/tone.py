"""Steady tones, which the network takes for vowels: dial tones, beeps, test signals."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from audio.fbank import HOP_SAMPLES
from audio.shared import Waveform

_FFT = 1024
_LINE_BINS = 3
"""Half width of a spectral line: 47 Hz, less than the distance between two harmonics of a voice."""
_LINE_SHARE = 0.98
"""Part of the power that lies in the line. Voices have several harmonics."""
_LOUD_DB = 20.0
"""Only frames within this range of the loudest 10 ms count: pauses say nothing, and edges of a tone click."""
_BATCH = 32


def is_steady_tone(waveform: Waveform, level_db: NDArray[np.float32]) -> bool:
    """Whether all loud frames (64 ms, every 20 ms) of a waveform are one spectral line at one frequency.

    Real speech is recognised as such by its first loud frames, so it costs next to nothing.

    Args:
        waveform: (n,) samples.
        level_db: (ceil(n / 160),) level of each 10 ms in dB.
    """
    blocks = -(-_FFT // HOP_SAMPLES)
    if len(level_db) < blocks:
        return False
    loud_so_far = np.concatenate([[0], np.cumsum(level_db >= level_db.max() - _LOUD_DB)])
    all_loud = loud_so_far[blocks:] - loud_so_far[:-blocks] == blocks
    starts = np.flatnonzero(all_loud)[::2] * HOP_SAMPLES
    starts = starts[starts + _FFT <= len(waveform)]
    if not len(starts):
        return False
    line, first, count = -1, 0, 2
    while first < len(starts):
        power = _spectra(waveform, starts[first : first + count])
        if line < 0:
            line = int(power[0].argmax())
        in_line = power[:, max(0, line - _LINE_BINS) : line + _LINE_BINS + 1].sum(axis=1)
        if not (in_line >= _LINE_SHARE * power.sum(axis=1)).all():
            return False
        first, count = first + count, min(2 * count, _BATCH)
    return True


@functools.cache
def _window() -> NDArray[np.float64]:
    return np.hanning(_FFT).astype(np.float64)


def _spectra(waveform: Waveform, starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Power spectra without the mean, (len(starts), bins)."""
    frames = waveform[starts[:, None] + np.arange(_FFT)]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * _window()
    power: NDArray[np.float64] = np.square(np.abs(np.fft.rfft(frames)))
    return power
