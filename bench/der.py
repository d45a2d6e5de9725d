"""Diarization error rate, computed exactly on the intervals between boundaries; equal to pyannote.metrics.

The rate is (missed + false alarm + confused seconds) over the seconds of reference speech, under the mapping of
speakers that leaves the fewest confused (NIST Rich Transcription). Nobody may overlap with himself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Labelled = tuple[float, float, Hashable]
"""Start and end in seconds, and who."""


@dataclass(frozen=True, slots=True)
class DiarizationErrors:
    """Seconds of each kind, and of reference speech that counted."""

    missed: float = 0.0
    false_alarm: float = 0.0
    confused: float = 0.0
    speech: float = 0.0

    @property
    def rate(self) -> float:
        return (self.missed + self.false_alarm + self.confused) / self.speech if self.speech else 0.0

    def __add__(self, other: DiarizationErrors) -> DiarizationErrors:
        return DiarizationErrors(
            self.missed + other.missed,
            self.false_alarm + other.false_alarm,
            self.confused + other.confused,
            self.speech + other.speech,
        )


def errors(reference: Sequence[Labelled], hypothesis: Sequence[Labelled], collar: float = 0.0) -> DiarizationErrors:
    """Compare who speaks when.

    Args:
        collar: seconds left out around every boundary of the reference, half of them on each side, as
            pyannote.metrics counts (NIST's collar of 0.25 s is 0.5 here).
    """
    zones = [(time - collar / 2, time + collar / 2, None) for start, end, _ in reference for time in (start, end)]
    zones = [zone for zone in zones if zone[1] > zone[0]]
    times = sorted({time for turn in (*reference, *hypothesis, *zones) for time in turn[:2]})
    seconds = np.diff(times)
    if zones:
        seconds = seconds * (_active(zones, times)[0].sum(0) == 0)
    if not len(seconds):
        return DiarizationErrors()
    (truth, _), (found, _) = _active(reference, times), _active(hypothesis, times)
    speaking, claimed = truth.sum(0), found.sum(0)
    together = (truth * seconds) @ found.T
    correct = best_mapping(together)
    return DiarizationErrors(
        missed=float((np.maximum(0, speaking - claimed) * seconds).sum()),
        false_alarm=float((np.maximum(0, claimed - speaking) * seconds).sum()),
        confused=float((np.minimum(speaking, claimed) * seconds).sum()) - correct,
        speech=float((speaking * seconds).sum()),
    )


def best_mapping(together: NDArray[np.float64]) -> float:
    """The largest sum of entries of a matrix, at most one in each row and column, by dynamic programming over sets."""
    rows = together if together.shape[0] >= together.shape[1] else together.T
    # best[s]: with the columns in set s given away.
    best = np.zeros(1 << rows.shape[1])
    sets = np.arange(len(best))
    for row in rows:
        before = best.copy()
        for column, value in enumerate(row):
            taken = sets[(sets >> column) & 1 == 1]
            best[taken] = np.maximum(best[taken], before[taken ^ (1 << column)] + value)
    return float(best.max())


def _active(turns: Sequence[Labelled], times: Sequence[float]) -> tuple[NDArray[np.float64], list[Hashable]]:
    """(speakers, intervals) 1 where somebody speaks, and who the rows are."""
    names = list(dict.fromkeys(who for *_, who in turns))
    active = np.zeros((len(names), max(0, len(times) - 1)))
    position = {time: number for number, time in enumerate(times)}
    for start, end, who in turns:
        active[names.index(who), position[start] : position[end]] = 1.0
    return active, names
