"""The clock: the only place where seconds become samples and back."""

from __future__ import annotations

from dataclasses import dataclass

SAMPLE_RATE = 16_000
"""Samples per second of every waveform inside Tinglu."""


def to_samples(seconds: float) -> int:
    """Index of the sample nearest to a time in seconds."""
    return round(seconds * SAMPLE_RATE)


def to_seconds(samples: int) -> float:
    """Time in seconds at which a sample index lies."""
    return samples / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a waveform, in seconds from its beginning; the end is exclusive."""

    start: float
    end: float

    @property
    def duration(self) -> float:
        return self.end - self.start

    def slice(self) -> slice:
        """The same stretch as sample indices, for cutting a waveform."""
        return slice(to_samples(self.start), to_samples(self.end))
