"""Dynamic time warping of text against audio."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_DIAGONAL, _DOWN, _RIGHT = 0, 1, 2


def first_frames(similarity: NDArray[np.float32]) -> NDArray[np.int64]:
    """The frame at which each row of a similarity matrix begins on the best monotonic path through it.

    Args:
        similarity: (rows, frames), larger is more alike; both at least 1.

    Returns:
        (rows,) frame indices, non-decreasing, the first one 0.
    """
    frames: NDArray[np.int64] = _first_frames(np.ascontiguousarray(-similarity, dtype=np.float64))
    return frames


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _first_frames(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    rows, frames = cost.shape
    move = np.empty((rows, frames), np.int8)
    above = np.full(frames + 1, np.inf)
    above[0] = 0.0
    here = np.empty(frames + 1)
    for i in range(rows):
        here[0] = np.inf
        for j in range(frames):
            diagonal, down, right = above[j], above[j + 1], here[j]
            if diagonal < down and diagonal < right:
                best, move[i, j] = diagonal, _DIAGONAL
            elif down < diagonal and down < right:
                best, move[i, j] = down, _DOWN
            else:
                best, move[i, j] = right, _RIGHT
            here[j + 1] = cost[i, j] + best
        above, here = here, above
    first: NDArray[np.int64] = _trace(move)
    return first


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _trace(move: NDArray[np.int8]) -> NDArray[np.int64]:
    rows, frames = move.shape
    first = np.zeros(rows, np.int64)
    i, j = rows - 1, frames - 1
    first[i] = j
    while i > 0 or j > 0:
        step = move[i, j]
        if j == 0 or (i > 0 and step == _DOWN):
            i -= 1
        elif i == 0 or step == _RIGHT:
            j -= 1
        else:
            i -= 1
            j -= 1
        first[i] = j
    return first
