"""What a diarization answers. Light to import: the app reads it without torch."""

from __future__ import annotations

from dataclasses import dataclass

from diarization.timeline import SpeakerTurn


@dataclass(frozen=True, slots=True)
class Diarization:
    """Who spoke when.

    Attributes:
        turns: in order, without overlap. A speaker's number counts from 0 in order of appearance.
        names: for each speaker, the name of the known one he is, or None.
        warnings: what of the request could not be honoured.
    """

    turns: tuple[SpeakerTurn, ...] = ()
    names: tuple[str | None, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def speakers(self) -> int:
        return len(self.names)
