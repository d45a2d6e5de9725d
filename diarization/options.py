"""What a request may choose about speakers. Light to import: the app does without torch."""

from __future__ import annotations

from dataclasses import dataclass

from audio.shared import Waveform
from audio.span import to_seconds

MOST_SPEAKERS = 50
"""Limit on every count that a request may give."""
MOST_KNOWN = 4
SHORTEST_REFERENCE, LONGEST_REFERENCE = 2.0, 10.0
"""Seconds of a known speaker's reference, as OpenAI defines them."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownSpeaker:
    """A name, and 2 to 10 s of that voice.

    Raises:
        ValueError: the name is empty, or the reference too short or too long.
    """

    name: str
    reference: Waveform

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a known speaker needs a name")
        seconds = to_seconds(len(self.reference))
        if not SHORTEST_REFERENCE <= seconds <= LONGEST_REFERENCE:
            raise ValueError(
                f"the reference of {self.name!r} is {seconds:.1f} s long, allowed are {SHORTEST_REFERENCE:g} to "
                f"{LONGEST_REFERENCE:g} s"
            )


@dataclass(frozen=True, slots=True)
class DiarizationOptions:
    """How many speakers there are, as far as it is known, and who some of them may be.

    Attributes:
        num_speakers: exactly so many. Excludes the other two.
        min_speakers, max_speakers: bounds on the estimate.
        known_speakers: at most four, with different names.

    Raises:
        ValueError: an option is out of range, or two contradict each other; the message names both values.
    """

    num_speakers: int | None = None
    min_speakers: int | None = None
    max_speakers: int | None = None
    known_speakers: tuple[KnownSpeaker, ...] = ()

    def __post_init__(self) -> None:
        for name in ("num_speakers", "min_speakers", "max_speakers"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_SPEAKERS:
                raise ValueError(f"{name} is {value}, allowed are 1 to {MOST_SPEAKERS}")
        if self.num_speakers is not None and (self.min_speakers is not None or self.max_speakers is not None):
            raise ValueError("num_speakers excludes min_speakers and max_speakers: give one or the others")
        if self.fewest > self.most:
            raise ValueError(f"min_speakers is {self.min_speakers}, more than max_speakers {self.max_speakers}")
        if len(self.known_speakers) > MOST_KNOWN:
            raise ValueError(f"{len(self.known_speakers)} known speakers, at most {MOST_KNOWN} are allowed")
        names = [known.name for known in self.known_speakers]
        if len(set(names)) < len(names):
            raise ValueError("two known speakers have the same name")

    @property
    def fewest(self) -> int:
        return self.num_speakers or self.min_speakers or 1

    @property
    def most(self) -> int:
        return self.num_speakers or self.max_speakers or MOST_SPEAKERS
