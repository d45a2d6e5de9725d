"""The app's view of a device, whether it is another process or a thread of this one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from audio.shared import SharedWaveform
from engine.stage import StageLoad


class DeviceGone(RuntimeError):
    """The device process died or stopped answering; nothing that was in flight will finish."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How a device is, as far as the app has heard.

    `alive`: loaded, and heard from lately. `failure`: why it ended or does not answer, None while there is nothing to
    tell. `final`: it will not come back. `restarts`: how often it was started anew.
    """

    alive: bool
    failure: str | None = None
    final: bool = False
    restarts: int = 0
    stages: Mapping[str, StageLoad] = field(default_factory=dict)


class Device(Protocol):
    """Calls on stages. A call that is closed before its last output is cancelled on the device."""

    async def ready(self) -> None:
        """Wait until every stage has loaded, after a restart too.

        Raises:
            DeviceGone: it never will be; the message says why.
        """

    @property
    def health(self) -> DeviceHealth:
        """How it is; costs nothing."""

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each stage said of itself (`Stage.describe`), by stage name; empty until ready."""

    def call(self, stage: str, waveform: SharedWaveform, request: Any) -> AsyncGenerator[Any, None]:
        """Send a request to a stage and yield its outputs as they come.

        Raises:
            DeviceGone: at once if the device is gone, or as soon as it dies.
            ValueError: the stage refused the request.
        """

    async def close(self) -> None:
        """Stop the device and wait for it."""
