"""The best CTC path through known labels, for many segments in one call without the interpreter's lock."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where the labels of one segment lie: rows [start, end), and the highest probability of the label within."""

    starts: Integers
    ends: Integers
    scores: Floats


def align(
    log_probs: Floats, row_offsets: Integers, labels: Integers, columns: Integers, label_offsets: Integers
) -> list[Alignment | None]:
    """Forced alignment by the Viterbi algorithm over labels with blanks between them (Graves et al., 2006).

    Of equal paths the one that stays longer in a state wins, and the one that ends in a label; float32 as in
    `torchaudio.functional.forced_align`, whose paths these are.

    Args:
        log_probs: (rows, K) float32, the rows of all segments; column 0 is the blank.
        row_offsets: (segments + 1,), where the rows of each segment begin.
        labels: (labels,), the labels of all segments, only compared with each other.
        columns: (labels,), in which column of its segment's rows each label is.
        label_offsets: (segments + 1,), where the labels of each segment begin.

    Returns:
        An alignment a segment; None where the rows are too few for the labels, there are no labels, or the rows are
        not finite.
    """
    path = np.full(len(log_probs), -1, np.int32)
    found = np.zeros(len(row_offsets) - 1, np.bool_)
    _compiled()(log_probs, row_offsets, labels, columns, label_offsets, path, found)
    owners = np.repeat(np.arange(len(found)), np.diff(row_offsets))
    rows = np.flatnonzero(path % 2 == 1)  # rows of labels, not of blanks; -1 is odd too
    rows = rows[path[rows] > 0]
    said = label_offsets[owners[rows]] + path[rows] // 2
    local = rows - row_offsets[owners[rows]]
    starts, ends = np.full(len(labels), len(log_probs)), np.zeros(len(labels), np.int64)
    scores = np.zeros(len(labels), np.float32)
    np.minimum.at(starts, said, local)
    np.maximum.at(ends, said, local + 1)
    np.maximum.at(scores, said, np.exp(log_probs[rows, columns[said]]))
    spans = zip(itertools.pairwise(label_offsets.tolist()), found.tolist(), strict=True)
    return [Alignment(starts[a:b], ends[a:b], scores[a:b]) if ok else None for (a, b), ok in spans]


def rows_needed(labels: Sequence[int]) -> int:
    """The fewest rows that can hold these labels: one each, and a blank between two equal ones."""
    return len(labels) + sum(a == b for a, b in itertools.pairwise(labels))


@functools.cache
def _compiled() -> Callable[..., None]:
    """The loop as machine code, kept on disk where that can be written; numba is imported with the first call."""
    import numba

    try:
        kernel: Callable[..., None] = numba.njit(nogil=True, cache=True)(_best_paths)
    except RuntimeError:  # numba has no directory to write to
        kernel = numba.njit(nogil=True)(_best_paths)
    return kernel


def _best_paths(
    log_probs: Any, row_offsets: Any, labels: Any, columns: Any, label_offsets: Any, path: Any, found: Any
) -> None:
    """Fill `path` with the state of every row: 2j + 1 is label j of its segment, even states are the blanks around.

    A segment without a finite path keeps what `path` held.
    """
    for segment in range(len(found)):
        first, states = label_offsets[segment], 2 * (label_offsets[segment + 1] - label_offsets[segment]) + 1
        begin, count = row_offsets[segment], row_offsets[segment + 1] - row_offsets[segment]
        if states == 1 or count == 0:
            continue
        best = np.full(states, -np.inf, np.float32)
        steps = np.zeros((count, states), np.int8)
        best[0] = log_probs[begin, 0]
        best[1] = log_probs[begin, columns[first]]
        for t in range(1, count):
            row = begin + t
            for s in range(min(states - 1, 2 * t + 1), -1, -1):  # downwards: what lies below is still of the row before
                value, step = best[s], 0
                if s > 0 and best[s - 1] > value:
                    value, step = best[s - 1], 1
                label = first + s // 2
                if s % 2 == 1 and s > 1 and labels[label] != labels[label - 1] and best[s - 2] > value:
                    value, step = best[s - 2], 2
                best[s] = value + (log_probs[row, 0] if s % 2 == 0 else log_probs[row, columns[label]])
                steps[t, s] = step
        state = states - 1 if best[states - 1] > best[states - 2] else states - 2
        if not np.isfinite(best[state]):
            continue
        found[segment] = True
        for t in range(count - 1, -1, -1):
            path[begin + t] = state
            state -= steps[t, state]
