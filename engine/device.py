"""The app's view of a device, whether it is another process or a thread of this one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from audio.shared import SharedWaveform


class DeviceGone(RuntimeError):
    """The device process died or stopped answering; nothing that was in flight will finish."""


class Device(Protocol):
    """Calls on stages. A call that is closed before its last output is cancelled on the device."""

    async def ready(self) -> None:
        """Wait until every stage has loaded.

        Raises:
            DeviceGone: loading failed; the message says why.
        """

    @property
    def alive(self) -> bool:
        """Loaded, and heard from lately."""

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
