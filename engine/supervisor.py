"""A device that is started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from audio.shared import SharedWaveform
from engine.client import DeviceClient
from engine.device import DeviceGone, DeviceHealth

_LOOK_SECONDS = 0.25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a device may die, loading included.

    It is started again up to `restarts` times in any `window_seconds`, after 1, 2, 4 ... times `backoff_seconds`, at
    most half a minute. One that does not answer for `hang_seconds` is killed.
    """

    restarts: int = 3
    window_seconds: float = 600.0
    backoff_seconds: float = 1.0
    hang_seconds: float = 30.0

    def backoff(self, deaths: int) -> float:
        """Seconds to wait after so many deaths, one or more."""
        return float(min(30.0, self.backoff_seconds * 2.0 ** (deaths - 1)))


class SupervisedDevice:
    """A `Device` over one that may die: its calls end with `DeviceGone`, and another takes its place.

    `ready` waits for the next one, and raises `DeviceGone` once there will be none.
    """

    def __init__(self, make: Callable[[], DeviceClient], policy: RestartPolicy | None = None) -> None:
        self._make = make
        self._policy = policy or RestartPolicy()
        self._device: DeviceClient | None = None
        self._failure: str | None = None
        self._final = False
        self._restarts = 0
        self._facts: Mapping[str, Mapping[str, Any]] = {}
        self._deaths: deque[float] = deque()
        self._changed = asyncio.Event()
        self._supervision: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        if self._supervision is None and not self._final:
            self._supervision = asyncio.create_task(self._supervise())
        while not self.health.alive:
            if self._final:
                raise DeviceGone(self._failure or "closed")
            self._changed.clear()
            with contextlib.suppress(TimeoutError):  # one that hangs comes to life again without a word
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)

    @property
    def health(self) -> DeviceHealth:
        if self._device is None:
            return DeviceHealth(False, self._failure, self._final, self._restarts)
        health = self._device.health
        return replace(health, failure=health.failure or self._failure, final=self._final, restarts=self._restarts)

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Those of the device before, while another is on its way."""
        if self._device is not None and self._device.facts:
            self._facts = self._device.facts
        return self._facts

    @property
    def pid(self) -> int | None:
        """Process id of the present device, None where it has none."""
        return getattr(self._device, "pid", None)

    async def call(self, stage: str, waveform: SharedWaveform, request: Any) -> AsyncGenerator[Any, None]:
        if self._device is None or not self._device.alive:
            raise DeviceGone(self.health.failure or "the device is not loaded")
        async with aclosing(self._device.call(stage, waveform, request)) as outputs:
            async for output in outputs:
                yield output

    async def close(self) -> None:
        self._final = True
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)
        if self._device is not None:
            await self._device.close()
        self._changed.set()

    async def _supervise(self) -> None:
        """One life after another."""
        while True:
            self._device = self._make()
            self._failure = await self._life(self._device)
            await self._device.close()
            self._device = None
            now = time.monotonic()
            self._deaths.append(now)
            while now - self._deaths[0] > self._policy.window_seconds:
                self._deaths.popleft()
            self._final = len(self._deaths) > self._policy.restarts
            self._changed.set()
            if self._final:
                _log.error("the device died %d times; giving up: %s", len(self._deaths), self._failure)
                return
            pause = self._policy.backoff(len(self._deaths))
            _log.warning("the device is started again in %g s: %s", pause, self._failure)
            await asyncio.sleep(pause)
            self._restarts += 1

    async def _life(self, device: DeviceClient) -> str:
        """From the start of a device to its end; why it ended."""
        try:
            await device.ready()
        except DeviceGone as error:
            return str(error)
        self._failure = None
        self._changed.set()
        answered = time.monotonic()
        while not device.health.final:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(device.ended(), _LOOK_SECONDS)
            if device.alive:
                answered = time.monotonic()
            elif time.monotonic() - answered > self._policy.hang_seconds:
                device.kill()
        return device.health.failure or "the device ended"
