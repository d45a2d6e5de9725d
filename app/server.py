"""The HTTP application: the doors around one pipeline."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

import uvicorn
from fastapi import FastAPI

from app.errors import install_error_handlers
from app.limits import BodyLimit
from app.pipeline import Pipeline
from app.readiness import Readiness
from app.routes import asr, health, openai, ws
from app.runtime import device_kind
from app.services import Services
from app.settings import Settings

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Largest WebSocket frame; 8 minutes of sound in one piece."""


def serve(pipeline: Pipeline, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; running requests get the grace time to finish.

    uvicorn raises the signal again when it is done, which would make an orderly end look like a crash.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        create_app(pipeline, settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_BYTES,
        log_config=None,
        log_level=settings.log_level,
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_grace_seconds,
    )


def create_app(pipeline: Pipeline, settings: Settings) -> FastAPI:
    """An app that answers from its first moment and serves as soon as the pipeline is ready.

    The app owns the pipeline from now on and closes it when it shuts down.
    """
    readiness = Readiness(pipeline, grace_seconds=settings.startup_grace_seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            async with readiness.following():
                yield
        finally:
            await pipeline.close()

    app = FastAPI(title="Tinglu", version=_version(), description="Offline speech to text.", lifespan=lifespan)
    app.state.services = Services(pipeline, settings, readiness, device_kind(settings))
    app.add_middleware(BodyLimit, max_bytes=settings.max_upload_bytes)
    install_error_handlers(app)
    for door in (health, asr, openai, ws):
        app.include_router(door.router)
    return app


def _version() -> str:
    try:
        return version("tinglu")
    except PackageNotFoundError:  # run from a checkout
        return "0"
