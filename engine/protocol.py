"""What the app and a device say to each other: small picklable messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audio.shared import SharedWaveformRef
from engine.flat import Flat
from engine.stage import Output, StageLoad


@dataclass(frozen=True, slots=True)
class Submit(Flat):
    """App to device: a call on a stage."""

    call_id: int
    stage: str
    waveform: SharedWaveformRef
    request: Any


@dataclass(frozen=True, slots=True)
class Cancel:
    """App to device: nobody waits for this call any more."""

    call_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """App to device: free everything and end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Device to app: every stage has loaded; what each says of itself."""

    facts: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Failed:
    """Device to app: a stage could not be loaded or broke; the last message of a device."""

    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Device to app, every second: seconds since the loop last came round, and how busy each stage is.

    Long is a stage that hangs.
    """

    idle_seconds: float
    stages: Mapping[str, StageLoad]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Device to app: what one turn of the loop has finished, in order; many calls share the cost of a message."""

    outputs: tuple[Output, ...]


ToDevice = Submit | Cancel | Stop
FromDevice = Ready | Failed | Heartbeat | Outputs
