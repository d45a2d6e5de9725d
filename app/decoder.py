"""Audio decoding in worker processes: the event loop stays free, and a file that crashes a decoder harms no other."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import signal
import stat
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import BinaryIO

from app.pipeline import EncodedAudio
from audio.decode import Channel, DecodeLimits, DecodingCancelled, decode_into
from audio.errors import UndecodableAudio
from audio.shared import SharedWaveform, SharedWaveformRef

_WORKER_BYTES = 1 << 30
"""Memory that decoding one recording may take, beyond the samples themselves: far more than any honest file needs."""


class DecoderPool:
    """A `Decoder` with a fixed number of worker processes, each busy with one recording at a time."""

    def __init__(self, *, workers: int, limits: DecodeLimits) -> None:
        self._limits = limits
        self._workers = [_Worker() for _ in range(workers)]
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def decode(self, audio: EncodedAudio, into: SharedWaveform, *, channel: Channel) -> None:
        worker = await self._idle.get()
        try:
            work = worker.submit(audio.content, into.ref(), self._limits, channel)
        except BaseException:
            self._idle.put_nowait(worker)
            raise
        # The worker is free when its work has ended, which a cancelled caller does not wait for.
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: _on(loop, self._idle, worker))
        try:
            await asyncio.wrap_future(work)
        except BrokenProcessPool:
            raise UndecodableAudio("the recording crashed the decoder") from None

    async def close(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(worker.close) for worker in self._workers))


class _Worker:
    """One process, replaced when a recording has killed it."""

    def __init__(self) -> None:
        self._executor = self._start()

    @staticmethod
    def _start() -> ProcessPoolExecutor:
        executor = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_initialise)
        executor.submit(_initialise)  # starts the process now, not with the first recording
        return executor

    def submit(
        self, content: bytes | str, into: SharedWaveformRef, limits: DecodeLimits, channel: Channel
    ) -> Future[None]:
        try:
            return self._executor.submit(_decode, content, into, limits, channel)
        except BrokenProcessPool:
            self._executor.shutdown(wait=False)
            self._executor = self._start()
            return self._executor.submit(_decode, content, into, limits, channel)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


def _on(loop: asyncio.AbstractEventLoop, idle: asyncio.Queue[_Worker], worker: _Worker) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(idle.put_nowait, worker)


def _initialise() -> None:
    """Workers end when the app ends them, not when a terminal interrupts the whole group.

    A few bytes can make FFmpeg allocate gigabytes (an MP4 whose index claims so many samples): memory is bounded.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    in_use = int(status["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + _WORKER_BYTES, in_use + _WORKER_BYTES))


def _decode(content: bytes | str, into: SharedWaveformRef, limits: DecodeLimits, channel: Channel) -> None:
    """Runs in a worker. A waveform that nobody wants any more ends the work."""
    with contextlib.suppress(DecodingCancelled), into.writer() as out, _open(content) as file:
        decode_into(file, out, limits=limits, channel=channel, cancelled=lambda: not into.wanted())


def _open(content: bytes | str) -> BinaryIO:
    """The recording as a seekable file.

    Raises:
        UndecodableAudio: the path leads to no regular file: a pipe would block, and be emptied for whoever reads it.
    """
    if isinstance(content, bytes):
        return io.BytesIO(content)
    if not stat.S_ISREG(os.stat(content).st_mode):
        raise UndecodableAudio("the recording is not a regular file")
    return open(content, "rb")
