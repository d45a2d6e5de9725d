"""Whether the models are loaded, and if not, why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from app.errors import Refusal
from app.pipeline import Pipeline
from engine.device import DeviceGone

logger = logging.getLogger(__name__)

Status = Literal["starting", "ok", "failed"]

_STARTING_RETRY_SECONDS = 5
_FAILED_RETRY_SECONDS = 30


class Readiness:
    """Follows a pipeline from its start to its death."""

    def __init__(self, pipeline: Pipeline, *, grace_seconds: float) -> None:
        self._pipeline = pipeline
        self._grace_seconds = grace_seconds
        self._loaded = False
        self._failure: str | None = None

    @property
    def status(self) -> Status:
        if self._failure is not None or (self._loaded and not self._pipeline.alive):
            return "failed"
        return "ok" if self._loaded else "starting"

    async def reason(self) -> str | None:
        """Why the status is failed, None if it is not."""
        if self.status != "failed" or self._failure is not None:
            return self._failure
        try:
            await self._pipeline.ready()  # at once: it was ready before
        except DeviceGone as error:
            return str(error)
        return "the device has stopped answering"

    @property
    def model(self) -> str | None:
        """The name of the model, once loaded."""
        return self._pipeline.capabilities.model if self._loaded else None

    def require(self) -> None:
        """Nothing, if a request would be served.

        Raises:
            Refusal: 503 and when to come back.
        """
        match self.status:
            case "starting":
                raise Refusal(503, "model_loading", "The model is still loading.", retry_after=_STARTING_RETRY_SECONDS)
            case "failed":
                raise Refusal(
                    503,
                    "engine_unavailable",
                    "The speech engine is not running; GET /health says why.",
                    retry_after=_FAILED_RETRY_SECONDS,
                )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Load in the background for as long as the context lasts."""
        loading = asyncio.create_task(self._load())
        try:
            yield
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(self._grace_seconds):
                await self._pipeline.ready()
        except TimeoutError:
            self._failure = f"the model did not load within {self._grace_seconds:g} s"
        except Exception as error:
            self._failure = str(error) or type(error).__name__
        else:
            self._loaded = True
            logger.info("ready: %s", self.model)
            return
        logger.error("loading failed: %s", self._failure)
