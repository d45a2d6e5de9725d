"""How long a pause may last before it ends a segment, depending on how long the segment already runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MAX_SILENCE_MS = 60_000
MAX_ROWS = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rows (limit in ms or None, silence in ms): up to a limit, inclusive, its silence is allowed.

    The limits rise and the last row, whose limit is None, counts for everything longer.

    Raises:
        ValueError: no rows or too many, limits that do not rise, a silence out of range, or no last row.
    """

    rows: tuple[tuple[int | None, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.rows) <= MAX_ROWS:
            raise ValueError(f"schedule has {len(self.rows)} rows, allowed are 1 to {MAX_ROWS}")
        previous = 0
        for number, (limit, silence) in enumerate(self.rows, 1):
            if not 0 <= silence <= MAX_SILENCE_MS:
                raise ValueError(f"schedule row {number}: silence {silence} ms, allowed are 0 to {MAX_SILENCE_MS}")
            if (limit is None) != (number == len(self.rows)):
                raise ValueError(f"schedule row {number}: limit {limit}, exactly the last row must have none")
            if limit is not None and limit <= previous:
                raise ValueError(f"schedule row {number}: limit {limit} ms, it must be above {previous}")
            previous = limit or previous

    @classmethod
    def of_seconds(cls, rows: Sequence[tuple[float | None, int]]) -> Schedule:
        """From rows whose limits are in seconds.

        Raises:
            ValueError: see the class; also a limit that is not a finite number.
        """
        for number, (limit, _) in enumerate(rows, 1):
            if limit is not None and not math.isfinite(limit):
                raise ValueError(f"schedule row {number}: limit {limit} s, it must be finite, or none in the last row")
        return cls(tuple((None if limit is None else round(limit * 1000), silence) for limit, silence in rows))

    @classmethod
    def fixed(cls, silence_ms: int) -> Schedule:
        """The same silence at every length."""
        return cls(((None, silence_ms),))

    def silence_ms(self, running_ms: int) -> int:
        """The silence allowed in a segment that has run so long."""
        return next(silence for limit, silence in self.rows if limit is None or running_ms <= limit)


OFFLINE = Schedule(
    (
        (10_000, 2000),
        (20_000, 1000),
        (30_000, 800),
        (40_000, 600),
        (50_000, 400),
        (60_000, 200),
        (None, 100),
    )
)
"""For whole files: the reference's default."""

STREAMING = Schedule(
    (
        (5_000, 2000),
        (10_000, 1500),
        (15_000, 1000),
        (30_000, 800),
        (45_000, 400),
        (None, 100),
    )
)
"""For live sound, where a listener waits for the end of a sentence: the reference's streaming helper."""
