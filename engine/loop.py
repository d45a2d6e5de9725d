"""The device loop: take what has arrived, let every busy stage do one step, hand out what is finished."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from audio.shared import Waveform
from engine.protocol import Cancel, Failed, FromDevice, Heartbeat, Outputs, Ready, Stop, Submit, ToDevice
from engine.stage import Counting, Gauging, Output, Stage, StageLoad

StageFactory = Callable[[], Stage]

_HEARTBEAT_SECONDS = 1.0
_IDLE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """The device's end of the connection. `send` may be called from several threads."""

    def receive(self, timeout: float) -> ToDevice | None:
        """The next message, or None after `timeout` seconds without one.

        Raises:
            EOFError: the app is gone.
        """

    def send(self, message: FromDevice) -> None: ...


def run_device(
    channel: Channel, factories: Mapping[str, StageFactory], loaded: Callable[[], None] | None = None
) -> None:
    """Load the stages, call `loaded`, serve until told to stop or the app is gone, free the stages.

    Whatever breaks, loading or serving, is the app's to know: it goes out as `Failed`, and is raised again.
    """
    loop = DeviceLoop(channel)
    try:
        with _heartbeats(channel, loop):
            loop.load(factories)
            if loaded is not None:
                loaded()
            loop.run()
    except (EOFError, BrokenPipeError):
        _log.warning("the app is gone")
    except Exception as error:
        channel.send(Failed(f"{type(error).__name__}: {error}"))
        raise
    finally:
        loop.close()


@dataclass(slots=True)
class _Call:
    """A call that is not finished, and the stage that works on it."""

    stage: str
    waveform: Waveform


class DeviceLoop:
    """Owns the stages and steps them, all from one thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stages: dict[str, Stage] = {}
        self._calls: dict[int, _Call] = {}
        self._outbox: list[Output] = []
        self._open: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        self._came_round = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the loop last came round."""
        return time.monotonic() - self._came_round

    def loads(self) -> Mapping[str, StageLoad]:
        """How busy each loaded stage is; may be called from any thread."""
        return {
            name: StageLoad(
                busy_seconds=self._busy[name] / 1e9,
                calls=self._open[name],
                counters=dict(stage.counters) if isinstance(stage, Counting) else {},
                gauges=dict(stage.gauges) if isinstance(stage, Gauging) else {},
            )
            for name, stage in list(self._stages.items())
        }

    def load(self, factories: Mapping[str, StageFactory]) -> None:
        """Build every stage, one after the other, and say so."""
        for name, factory in factories.items():
            started = time.perf_counter()
            self._stages[name] = factory()
            _log.info("stage %s loaded in %.1f s", name, time.perf_counter() - started)
        self._channel.send(Ready({name: dict(stage.describe()) for name, stage in self._stages.items()}))

    def run(self) -> None:
        """Serve until `Stop`; EOFError says that the app is gone."""
        while self._take_messages():
            self._send_outputs()
            self._came_round = time.monotonic()
            for name, stage in self._stages.items():
                if stage.busy:
                    started = time.perf_counter_ns()
                    for output in stage.step():
                        self._hand_out(output)
                    self._busy[name] += time.perf_counter_ns() - started
            self._send_outputs()

    def close(self) -> None:
        for stage in self._stages.values():
            stage.close()

    def _take_messages(self) -> bool:
        """Everything that has arrived; waits only while no stage has work. False ends the loop."""
        busy = any(stage.busy for stage in self._stages.values())
        message = self._channel.receive(0.0 if busy else _IDLE_SECONDS)
        while message is not None:
            match message:
                case Submit():
                    self._submit(message)
                case Cancel(call_id):
                    if call := self._calls.get(call_id):
                        self._forget(call_id)
                        self._stages[call.stage].cancel(call_id)
                case Stop():
                    return False
            message = self._channel.receive(0.0)
        return True

    def _submit(self, call: Submit) -> None:
        try:
            waveform = call.waveform.open()
        except OSError as error:
            # Mostly a file that is not there any more: its caller has left, and the answer finds nobody.
            self._outbox.append(Output(call.call_id, error=error))
            return
        self._begin(call.call_id, call.stage, waveform, call.request)

    def _begin(self, call_id: int, stage: str, waveform: Waveform, request: Any) -> None:
        self._calls[call_id] = _Call(stage, waveform)
        self._open[stage] += 1
        try:
            self._stages[stage].submit(call_id, waveform, request)
        except ValueError as error:
            self._hand_out(Output(call_id, error=error))

    def _hand_out(self, output: Output) -> None:
        call = self._calls.get(output.call_id)
        if call is None:
            return
        self._outbox.append(output if output.then is None else replace(output, last=False, then=None))
        if output.then is not None:
            self._forget(output.call_id)
            stage, request = output.then
            self._begin(output.call_id, stage, call.waveform, request)
        elif output.last or output.error:
            self._forget(output.call_id)

    def _send_outputs(self) -> None:
        if self._outbox:
            outputs, self._outbox = tuple(self._outbox), []
            self._channel.send(Outputs(outputs))

    def _forget(self, call_id: int) -> None:
        self._open[self._calls.pop(call_id).stage] -= 1


@contextmanager
def _heartbeats(channel: Channel, loop: DeviceLoop) -> Iterator[None]:
    """Tell the app every second that the process lives, and for how long its loop has not come round."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_HEARTBEAT_SECONDS):
            try:
                channel.send(Heartbeat(loop.idle_seconds, loop.loads()))
            except OSError:
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
