"""Whether requests are served, and if not, why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from app.errors import Refusal
from app.pipeline import Pipeline
from app.selftest import SelfTestFailed
from engine.device import DeviceGone

logger = logging.getLogger(__name__)

Status = Literal["starting", "ok", "restarting", "stopping", "failed"]

_LOOK_SECONDS = 0.2
_STARTING_RETRY_SECONDS = 5
_RESTARTING_RETRY_SECONDS = 10
_FAILED_RETRY_SECONDS = 30


class Readiness:
    """Follows a pipeline from its start to its death, and through restarts of its device."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        grace_seconds: float,
        self_test: Callable[[], Awaitable[None]] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`self_test` raises `SelfTestFailed` where the loaded models do not work. `on_lost` is called once, when the
        device is gone for good.
        """
        self._pipeline = pipeline
        self._grace_seconds = grace_seconds
        self._self_test = self_test
        self._on_lost = on_lost
        self._loaded = False
        self._stopping = False
        self._failure: str | None = None

    @property
    def status(self) -> Status:
        if self._stopping:
            return "stopping"
        health = self._pipeline.health
        if self._failure is not None or (health.final and health.failure is not None):
            return "failed"
        if self._loaded and health.alive:
            return "ok"
        return "restarting" if self._loaded or health.failure is not None else "starting"

    @property
    def reason(self) -> str | None:
        """What is wrong, None if nothing is."""
        return self._failure or self._pipeline.health.failure

    @property
    def model(self) -> str | None:
        """The name of the model, while it is loaded."""
        return self._pipeline.capabilities.model if self.status == "ok" else None

    def stop(self) -> None:
        """From now on requests are refused: the server ends."""
        self._stopping = True

    def require(self) -> None:
        """Nothing, if a request would be served.

        Raises:
            Refusal: 503 and when to come back.
        """
        unavailable = "The speech engine is not running; GET /health says why."
        match self.status:
            case "starting":
                raise Refusal(503, "model_loading", "The model is still loading.", retry_after=_STARTING_RETRY_SECONDS)
            case "restarting":
                raise Refusal(503, "engine_unavailable", unavailable, retry_after=_RESTARTING_RETRY_SECONDS)
            case "failed":
                raise Refusal(503, "engine_unavailable", unavailable, retry_after=_FAILED_RETRY_SECONDS)
            case "stopping":
                raise Refusal(
                    503, "shutting_down", "The server is shutting down.", retry_after=_RESTARTING_RETRY_SECONDS
                )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Load in the background, and again after a restart, for as long as the context lasts."""
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            while True:
                await self._load()
                while self._pipeline.health.alive:  # noqa: ASYNC110 - silence is no event
                    await asyncio.sleep(_LOOK_SECONDS)
                self._loaded = False
        except TimeoutError:
            self._fail(f"the model did not load within {self._grace_seconds:g} s", lost=True)
        except Exception as error:
            self._fail(str(error) or type(error).__name__, lost=not isinstance(error, SelfTestFailed))

    def _fail(self, failure: str, *, lost: bool) -> None:
        self._failure = failure
        logger.error("not ready: %s", failure)
        if lost and self._on_lost is not None:
            self._on_lost()

    async def _load(self) -> None:
        """Wait until the models are loaded and have shown that they work."""
        while not self._loaded:
            async with asyncio.timeout(self._grace_seconds):
                await self._pipeline.ready()
                try:
                    if self._self_test is not None:
                        await self._self_test()
                except DeviceGone as error:
                    logger.warning("the device died in the self-test: %s", error)
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
            self._loaded = True
            logger.info("ready: %s", self.model)
