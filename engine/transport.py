"""How messages travel between the app and a device: to a process over a socket, or to a thread over queues."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

from engine.frames import Frames
from engine.logs import configure_logging
from engine.loop import StageFactory, run_device
from engine.protocol import FromDevice, ToDevice

_STOP_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Transport(Protocol):
    """Carries messages to a device and back."""

    def start(self, receive: Callable[[FromDevice], None], gone: Callable[[str], None]) -> None:
        """Start the device. `receive` gets every message and `gone` the reason of its end, both on the event loop."""

    def send(self, message: ToDevice) -> None:
        """Raises OSError if the device is gone."""

    def kill(self) -> None:
        """End the device at once, where that is possible."""

    async def join(self) -> None:
        """Wait until the device has ended, by force if it takes too long."""


class ProcessTransport:
    """To a process of its own, over a Unix socket."""

    def __init__(self, factories: Mapping[str, StageFactory], environment: Mapping[str, str]) -> None:
        self._factories = dict(factories)
        self._environment = dict(environment)
        self._process: SpawnProcess | None = None
        self._frames: Frames | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return self._process.pid if self._process else None

    def start(self, receive: Callable[[FromDevice], None], gone: Callable[[str], None]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with Connection(theirs.detach()) as connection:
            self._process = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(connection, self._factories, self._environment), name="tinglu-device"
            )
            self._process.start()
        loop = asyncio.get_running_loop()

        async def end() -> None:
            await self._reap()
            assert self._process is not None
            gone(f"the device process ended with exit code {self._process.exitcode}")

        def over() -> None:
            self._ending = loop.create_task(end())

        self._frames = Frames(receive, over)
        self._connecting = loop.create_task(self._frames.connect(ours))

    def send(self, message: ToDevice) -> None:
        if self._frames is None:
            raise BrokenPipeError("the device process is not running")
        self._frames.send(message)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def join(self) -> None:
        await self._reap()
        if self._connecting is not None:
            await self._connecting
        if self._frames is not None:
            self._frames.close()
        if self._ending is not None:
            await self._ending

    async def _reap(self) -> None:
        """Wait for the process to end, and end it if it does not."""
        if self._process is None:
            return
        await asyncio.to_thread(self._process.join, _STOP_SECONDS)
        if self._process.is_alive():
            _log.warning("the device process does not stop; killing it")
            self._process.kill()
            await asyncio.to_thread(self._process.join)


class ThreadTransport:
    """To a thread of this process, over queues."""

    def __init__(self, factories: Mapping[str, StageFactory]) -> None:
        self._factories = factories
        self._inbox: queue.SimpleQueue[ToDevice] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, receive: Callable[[FromDevice], None], gone: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()

        def on_loop(callback: Callable[[Any], None], argument: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it
                loop.call_soon_threadsafe(callback, argument)

        def run() -> None:
            try:
                run_device(_QueueChannel(self._inbox, lambda message: on_loop(receive, message)), self._factories)
            except Exception:
                _log.exception("the device thread broke")
            on_loop(gone, "the device thread ended")

        self._thread = threading.Thread(target=run, name="tinglu-device", daemon=True)
        self._thread.start()

    def send(self, message: ToDevice) -> None:
        self._inbox.put(message)

    def kill(self) -> None:
        """A thread cannot be killed."""

    async def join(self) -> None:
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _STOP_SECONDS)


class _QueueChannel:
    """A device's end in a thread."""

    def __init__(self, inbox: queue.SimpleQueue[ToDevice], send: Callable[[FromDevice], None]) -> None:
        self._inbox = inbox
        self.send = send

    def receive(self, timeout: float) -> ToDevice | None:
        try:
            return self._inbox.get(timeout=timeout) if timeout else self._inbox.get_nowait()
        except queue.Empty:
            return None


class _PipeChannel:
    """A device's end in a process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def receive(self, timeout: float) -> ToDevice | None:
        if not self._connection.poll(timeout):
            return None
        message: ToDevice = pickle.loads(self._connection.recv_bytes())
        return message

    def send(self, message: FromDevice) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            self._connection.send_bytes(data)


def _serve(connection: Connection, factories: dict[str, StageFactory], environment: dict[str, str]) -> None:
    """The device process. It ends when the app says so or is gone, not when a terminal or a supervisor signals all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.dup2(2, 1)  # results belong to the app's stdout; whatever libraries print here is a log
    os.environ.update(environment)
    configure_logging(os.environ.get("TINGLU_LOG_LEVEL", "info"), os.environ.get("TINGLU_LOG_FORMAT", "text"))
    run_device(_PipeChannel(connection), factories, _settle)


def _settle() -> None:
    """Models stay: looking through their million objects for garbage would stop the device for half a second."""
    gc.collect()
    gc.freeze()
