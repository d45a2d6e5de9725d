"""Whether a series of measurements rises, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SHARED_MIB = 1.0
"""What shared pages count for one process shrinks and grows with what the others do."""
_TWO_SIDED_95 = 2.0
"""Student's t for some twenty points and more."""


@dataclass(frozen=True, slots=True)
class Slope:
    """By least squares, with half the width of its 95 % confidence interval."""

    value: float
    margin: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Slope:
        """The slope of y over x; its margin is infinite for less than three points."""
        if len(points) < 3:
            return cls(0.0, math.inf)
        x, y = np.array(points).T
        value, offset = np.polyfit(x, y, 1)
        spread = float(((x - x.mean()) ** 2).sum())
        noise = float(((y - value * x - offset) ** 2).sum()) / (len(points) - 2)
        return cls(float(value), _TWO_SIDED_95 * math.sqrt(noise / spread))

    @property
    def rises(self) -> bool:
        """Whether it is above zero beyond doubt, and by more than what is left to chance between processes."""
        return self.value - self.margin > _SHARED_MIB

    def __str__(self) -> str:
        verdict = "rises" if self.rises else "does not rise"
        return f"{self.value:+.1f} ± {self.margin:.1f} MiB per 1000 requests, {verdict}"
