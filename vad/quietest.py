"""Where to cut speech that does not pause."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOOR_DB = -80.0
"""Level below which everything counts as equally quiet, so that a lost packet does not outweigh a pause."""

_PAUSE_FRAMES = 20
"""Width of the weighted mean that finds the pause: gaps between words last 50 to 200 ms, closures of stops less."""
_DIP_FRAMES = 4
"""Width of the mean that finds the quietest point inside the pause."""
_SPEECH_DB = 20.0
"""How much louder a frame counts that the network is sure is speech."""


def quietest_boundary(level_db: NDArray[np.float32], p_silence: NDArray[np.float32]) -> int:
    """The quietest boundary between frames; of equals, the last.

    First the quietest pause is found, by level and P(silence) over 0.2 s, then the dip in level inside it.

    Args:
        level_db: (n,) level of each 10 ms in dB.
        p_silence: (n,) in [0, 1].

    Returns:
        b, 0 < b <= n: the cut lies before frame b.
    """
    level = np.maximum(level_db, FLOOR_DB).astype(np.float64)
    first = 0
    if len(level) > _PAUSE_FRAMES:
        window = np.hanning(_PAUSE_FRAMES + 2)[1:-1]
        loudness = np.convolve(level - _SPEECH_DB * p_silence, window / window.sum(), "valid")
        first = _last_minimum(loudness)
        level = level[first : first + _PAUSE_FRAMES]
    if len(level) < _DIP_FRAMES:
        return first + len(level)
    dips = np.convolve(level, np.full(_DIP_FRAMES, 1 / _DIP_FRAMES), "valid")
    return first + _last_minimum(dips) + _DIP_FRAMES // 2


def _last_minimum(values: NDArray[np.float64]) -> int:
    """Rounded, so that a constant sound is cut as late as it can be whatever the last bits say."""
    return len(values) - 1 - int(np.argmin(np.round(values[::-1], 3)))
