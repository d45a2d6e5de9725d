"""What a request or a server may choose about segments. Light to import: the app does without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vad.schedule import MAX_SILENCE_MS, OFFLINE, Schedule

_SHORTEST_LIMIT, _LONGEST_LIMIT = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class SegmentationOptions:
    """How speech is cut into segments.

    Attributes:
        mode: "graded", or "compat" for the segment lists of the reference (its segments may pass the limit by 10 ms).
        max_segment_seconds: the recogniser's limit.
        schedule: rows (length of the segment in seconds up to which the row counts, silence in ms that ends it); the
            limits rise, and the last is None. None: the reference's offline schedule.
        fixed_silence_ms: a silence that ends a segment of any length, instead of a schedule.
        speech_threshold: by how much P(speech) must exceed P(silence) in a frame of speech. None: 0.5, or 0.6 in mode
            "compat" with a fixed silence.

    Raises:
        ValueError: an option is out of range; the message names it, its value and the range.
    """

    mode: Literal["graded", "compat"] = "graded"
    max_segment_seconds: float = 60.0
    schedule: tuple[tuple[float | None, int], ...] | None = None
    fixed_silence_ms: int | None = None
    speech_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("graded", "compat"):
            raise ValueError(f"mode is {self.mode!r}, allowed are 'graded' and 'compat'")
        if not _SHORTEST_LIMIT <= self.max_segment_seconds <= _LONGEST_LIMIT:
            raise ValueError(
                f"max_segment_seconds is {self.max_segment_seconds}, allowed are {_SHORTEST_LIMIT} to {_LONGEST_LIMIT}"
            )
        if self.fixed_silence_ms is not None:
            if self.schedule is not None:
                raise ValueError("fixed_silence_ms and schedule exclude each other: give one of them")
            if not 0 <= self.fixed_silence_ms <= MAX_SILENCE_MS:
                raise ValueError(f"fixed_silence_ms is {self.fixed_silence_ms}, allowed are 0 to {MAX_SILENCE_MS}")
        if self.speech_threshold is not None and not -1 < self.speech_threshold < 1:
            raise ValueError(f"speech_threshold is {self.speech_threshold}, it must lie between -1 and 1")
        self.silences()

    def silences(self) -> Schedule:
        """The silence that ends a segment, by its length."""
        if self.fixed_silence_ms is not None:
            return Schedule.fixed(self.fixed_silence_ms)
        return OFFLINE if self.schedule is None else Schedule.of_seconds(self.schedule)
