"""What `/metrics` shows of the moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.admission import Admission
from app.limits import Uploads
from app.pipeline import Pipeline
from app.readiness import Readiness
from app.sockets import Sockets
from engine.device import DeviceHealth


@dataclass(frozen=True, slots=True)
class State:
    """The parts of an app that know."""

    pipeline: Pipeline
    readiness: Readiness
    admission: Admission
    sockets: Sockets
    uploads: Uploads

    @property
    def ready(self) -> bool:
        return self.readiness.status == "ok"

    @property
    def model(self) -> str | None:
        return self.readiness.model

    @property
    def device(self) -> DeviceHealth:
        return self.pipeline.health

    @property
    def gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "requests_in_flight": ("Requests admitted and not finished", self.admission.requests),
            "waiting_audio_seconds": ("Sound decoded and not yet transcribed", self.admission.audio_seconds),
            "rtfx": ("Seconds of sound transcribed in a second with something to do", self.admission.rate),
            "uploads": ("Request bodies that arrive", self.uploads.count),
            "tasks": ("Tasks of the event loop", len(asyncio.all_tasks())),
            "sockets": ("WebSockets", self.sockets.count),
            "socket_bytes": ("Sound that WebSockets hold", self.sockets.bytes),
        }
