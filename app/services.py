"""What the doors share, and how they reach it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from app.access import Ledger
from app.admission import Admission
from app.disconnect import unless_gone
from app.errors import refusal_for
from app.limits import Uploads
from app.metrics import Metrics
from app.pipeline import EncodedAudio, Pipeline, Source, TranscriptionOptions
from app.readiness import Readiness
from app.settings import Settings
from app.sockets import Sockets
from app.transcript import Segment, Transcript
from engine.recognition import Capabilities
from vad.options import SegmentationOptions


@dataclass(frozen=True, slots=True)
class Services:
    """The pipeline and what guards it; one per app."""

    pipeline: Pipeline
    settings: Settings
    readiness: Readiness
    admission: Admission
    sockets: Sockets
    uploads: Uploads
    ledger: Ledger
    metrics: Metrics
    device: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def segmentation(self) -> SegmentationOptions:
        """How recordings are cut unless the request says otherwise."""
        return self.pipeline.segmentation

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
        return await unless_gone(request, self.transcript(audio, options))

    async def transcript(self, source: Source, options: TranscriptionOptions) -> Transcript:
        """The transcript, whoever waits for it.

        Raises:
            Refusal: what to answer instead.
        """
        try:
            async with aclosing(self.stream(source, options)) as items:
                async for item in items:
                    if isinstance(item, Transcript):
                        return item
        except Exception as error:
            raise refusal_for(error) from error
        raise AssertionError("a stream ends with its transcript")

    async def stream(self, source: Source, options: TranscriptionOptions) -> AsyncGenerator[Segment | Transcript, None]:
        """The same in pieces, as `Pipeline.stream` gives them; raises its exceptions, and refusals of admission."""
        with self.admission.place() as place:
            async with aclosing(self.pipeline.stream(source, options, admit=place.hear)) as items:
                async for item in items:
                    place.done_until(item.duration if isinstance(item, Transcript) else item.end)
                    yield item


async def any_services(connection: HTTPConnection) -> Services:
    """The services of the app, whatever their state."""
    services = connection.app.state.services
    assert isinstance(services, Services)
    return services


async def ready_services(request: Request, services: Annotated[Services, Depends(any_services)]) -> Services:
    """The services of an app that can serve.

    Raises:
        Refusal: 503, or 429 where there is no room for a recording; the body of the request has not been read.
    """
    services.readiness.require()
    if request.method == "POST":
        services.admission.require()
    return services


AnyServices = Annotated[Services, Depends(any_services)]
ReadyServices = Annotated[Services, Depends(ready_services)]
