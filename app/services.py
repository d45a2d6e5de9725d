"""What the doors share, and how they reach it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from app.disconnect import unless_gone
from app.errors import refusal_for
from app.pipeline import EncodedAudio, Pipeline, TranscriptionOptions
from app.readiness import Readiness
from app.settings import Settings
from app.transcript import Transcript
from engine.recognition import Capabilities
from vad.options import SegmentationOptions


@dataclass(frozen=True, slots=True)
class Services:
    """The pipeline and what guards it; one per app."""

    pipeline: Pipeline
    settings: Settings
    readiness: Readiness
    device: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def segmentation(self) -> SegmentationOptions:
        """How recordings are cut unless the request says otherwise."""
        return self.settings.segmentation()

    @property
    def capabilities(self) -> Capabilities:
        """What the loaded recogniser can do; only once ready."""
        return self.pipeline.capabilities

    async def transcribe(self, request: Request, audio: EncodedAudio, options: TranscriptionOptions) -> Transcript:
        """The transcript for a client that still waits for it.

        Raises:
            Refusal: what to answer instead.
            ClientDisconnect: the client has left; everything of the request is cancelled.
        """
        return await unless_gone(request, self._transcribe(audio, options))

    async def _transcribe(self, audio: EncodedAudio, options: TranscriptionOptions) -> Transcript:
        try:
            return await self.pipeline.transcribe(audio, options)
        except Exception as error:
            raise refusal_for(error) from error


async def any_services(connection: HTTPConnection) -> Services:
    """The services of the app, whatever their state."""
    services = connection.app.state.services
    assert isinstance(services, Services)
    return services


async def ready_services(services: Annotated[Services, Depends(any_services)]) -> Services:
    """The services of an app that can serve.

    Raises:
        Refusal: 503; the body of the request has not been read.
    """
    services.readiness.require()
    return services


AnyServices = Annotated[Services, Depends(any_services)]
ReadyServices = Annotated[Services, Depends(ready_services)]
