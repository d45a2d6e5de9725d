"""The app's end of a device: calls, cancellation, and word of its life and death.

`DeviceProcess` runs the stages in a process of their own, `DeviceThread` in a thread of this one (tests, the command
line). Both must be made and used on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from audio.shared import SharedWaveform
from engine.device import DeviceGone, DeviceHealth
from engine.loop import StageFactory
from engine.protocol import Cancel, Failed, FromDevice, Heartbeat, Outputs, Ready, Stop, Submit, ToDevice
from engine.stage import Output, StageLoad
from engine.transport import ProcessTransport, ThreadTransport, Transport

_HEARTBEAT_TIMEOUT_SECONDS = 5.0
_DELIVERED_AT_ONCE = 4

_log = logging.getLogger(__name__)


class DeviceClient:
    """A `Device` over a transport."""

    def __init__(self, transport: Transport, *, stall_seconds: float = 120.0) -> None:
        """`stall_seconds` is how long one turn of the device's loop may take before the device counts as hung."""
        self._transport = transport
        self._stall_seconds = stall_seconds
        self._ids = itertools.count()
        self._calls: dict[int, asyncio.Queue[Output]] = {}
        self._arrived: deque[Output] = deque()
        self._facts: Mapping[str, Mapping[str, Any]] = {}
        self._loaded = asyncio.Event()
        self._ended = asyncio.Event()
        self._gone: str | None = None
        self._heard = time.monotonic()
        self._stalled_for = 0.0
        self._stages: Mapping[str, StageLoad] = {}
        self._started = False
        self._closing = False

    async def ready(self) -> None:
        if not self._started:
            self._started = True
            self._transport.start(self._receive, self._lost)
        await self._loaded.wait()
        if self._gone is not None:
            raise DeviceGone(self._gone)

    @property
    def alive(self) -> bool:
        """Loaded, and heard from lately."""
        if self._gone is not None or not self._facts:
            return False
        silent = time.monotonic() - self._heard > _HEARTBEAT_TIMEOUT_SECONDS
        return not silent and self._stalled_for < self._stall_seconds

    @property
    def health(self) -> DeviceHealth:
        if self._gone is not None or not self._facts or self.alive:
            return DeviceHealth(self.alive, self._gone, final=self._gone is not None, stages=self._stages)
        return DeviceHealth(False, "the device has stopped answering", stages=self._stages)

    async def ended(self) -> None:
        """Wait until it is gone."""
        await self._ended.wait()

    def kill(self) -> None:
        """End it by force, where that is possible; for a device that has stopped answering."""
        self._transport.kill()

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        return self._facts

    async def call(self, stage: str, waveform: SharedWaveform, request: Any) -> AsyncGenerator[Any, None]:
        if (failure := self.health.failure) is not None:
            raise DeviceGone(failure)
        call_id = next(self._ids)
        outputs = self._calls[call_id] = asyncio.Queue[Output]()
        self._send(Submit(call_id, stage, waveform.ref(), request))
        over = False
        try:
            while not over:
                output = await outputs.get()
                over = output.last or output.error is not None
                if output.error is not None:
                    raise output.error
                if output.value is not None:
                    yield output.value
        finally:
            del self._calls[call_id]
            if not over:
                self._send(Cancel(call_id))

    async def close(self) -> None:
        self._closing = True
        if self._started:
            self._send(Stop())
            await self._transport.join()
        self._lost("closed")

    def _send(self, message: ToDevice) -> None:
        # A device that is gone says so through `_lost`, which ends every call.
        with contextlib.suppress(OSError):
            self._transport.send(message)

    def _receive(self, message: FromDevice) -> None:
        self._heard = time.monotonic()
        match message:
            case Outputs(outputs):
                idle = not self._arrived
                self._arrived.extend(outputs)
                if idle:
                    self._deliver()
            case Heartbeat(idle_seconds, stages):
                self._stalled_for, self._stages = idle_seconds, stages
            case Ready(facts):
                self._facts = facts
                self._loaded.set()
            case Failed(reason):
                self._lost(reason)

    def _deliver(self) -> None:
        """Wake a few calls, and the others when the event loop has come round: whoever else waits for it waits less."""
        for _ in range(min(_DELIVERED_AT_ONCE, len(self._arrived))):
            output = self._arrived.popleft()
            if call := self._calls.get(output.call_id):
                call.put_nowait(output)
        if self._arrived:
            asyncio.get_running_loop().call_soon(self._deliver)

    def _lost(self, reason: str) -> None:
        if self._gone is not None:
            return
        self._gone = reason
        if not self._closing:
            _log.error("the device is gone: %s", reason)
        self._loaded.set()
        self._ended.set()
        for call_id, outputs in self._calls.items():
            outputs.put_nowait(Output(call_id, error=DeviceGone(reason)))


class DeviceProcess(DeviceClient):
    """The stages in a process of their own. `environment` is set in it before anything heavy is imported."""

    def __init__(
        self,
        factories: Mapping[str, StageFactory],
        *,
        environment: Mapping[str, str] | None = None,
        stall_seconds: float = 120.0,
    ) -> None:
        self._process = ProcessTransport(factories, environment or {})
        super().__init__(self._process, stall_seconds=stall_seconds)

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return self._process.pid


class DeviceThread(DeviceClient):
    """The stages in a thread of this process."""

    def __init__(self, factories: Mapping[str, StageFactory]) -> None:
        super().__init__(ThreadTransport(factories))
