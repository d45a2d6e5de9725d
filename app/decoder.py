"""Audio decoding in worker processes: the event loop stays free, and a file that crashes a decoder harms no other."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeVar

from app.pipeline import EncodedAudio
from app.record import stage
from audio.decode import Channel, DecodeLimits, DecodingCancelled, decode_channels_into, decode_into
from audio.errors import UndecodableAudio
from audio.plain import plain_samples
from audio.shared import SharedWaveform, SharedWaveformRef, Waveform
from audio.span import to_seconds

_WORKER_BYTES = 1 << 30
"""Memory that decoding one recording may take, beyond the samples themselves: far more than any honest file needs."""


_LONG_BYTES = 4 << 20
"""A quarter of an hour and more in the codecs of the web."""

_PLAIN_BYTES = 1 << 20
"""What is copied on the event loop, in a millisecond."""


T = TypeVar("T")


class DecoderPool:
    """A `Decoder` with a fixed number of worker processes, each busy with one recording at a time."""

    def __init__(self, *, workers: int, limits: DecodeLimits) -> None:
        self._limits = limits
        self._workers = [_Worker() for _ in range(workers)]
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        # One worker is left to short recordings, which would otherwise wait for several long ones to be decoded.
        self._long = asyncio.Semaphore(workers - 1) if workers > 1 else None
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def decode(self, audio: EncodedAudio, into: SharedWaveform, *, channel: Channel) -> None:
        if (samples := self._plain(audio.content)) is not None:
            with stage("decode"):
                into.write(samples)
            return
        await self._in_turn(audio, _decode, into.ref(), self._limits, channel)

    async def decode_channels(self, audio: EncodedAudio, into: Sequence[SharedWaveform]) -> int:
        refs = [waveform.ref() for waveform in into]
        return await self._in_turn(audio, _decode_channels, refs, self._limits)

    def _plain(self, content: bytes | str) -> Waveform | None:
        """The samples of a short file that needs no decoding; a worker would take ten times as long for the errand."""
        if not isinstance(content, bytes) or len(content) > _PLAIN_BYTES or not self._allows(len(content)):
            return None
        return plain_samples(content)

    def _allows(self, size: int) -> bool:
        """Whether no limit is in reach of so many bytes of 16-bit samples; otherwise a worker says which."""
        limits, samples = self._limits, size // 2
        reached = ((limits.max_bytes, size), (limits.max_pcm_bytes, 4 * samples))
        enough_seconds = limits.max_seconds is None or to_seconds(samples) <= limits.max_seconds
        return enough_seconds and all(most is None or much <= most for most, much in reached)

    async def _in_turn(self, audio: EncodedAudio, work: Callable[..., T], *arguments: Any) -> T:
        async with contextlib.AsyncExitStack() as turn:
            with stage("queue"):
                if self._long is not None and await asyncio.to_thread(_is_long, audio):
                    await turn.enter_async_context(self._long)
                worker = await self._idle.get()
            with stage("decode"):
                return await self._done_by(worker, work, audio.content, *arguments)

    async def _done_by(self, worker: _Worker, function: Callable[..., T], *arguments: Any) -> T:
        """Have an idle worker decode, and count it among the idle ones again."""
        try:
            work = worker.submit(function, *arguments)
        except BaseException:
            self._idle.put_nowait(worker)
            raise
        # The worker is free when its work has ended, which a cancelled caller does not wait for.
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: _on(loop, self._idle, worker))
        try:
            return await asyncio.wrap_future(work)
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
        with _apart():
            executor.submit(os.getpid)  # starts the process now, not with the first recording
        return executor

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        try:
            return self._executor.submit(function, *arguments)
        except BrokenProcessPool:
            self._executor.shutdown(wait=False)
            self._executor = self._start()
            return self._executor.submit(function, *arguments)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


def _is_long(audio: EncodedAudio) -> bool:
    """Whether it may take seconds to decode."""
    content = audio.content
    try:
        return (len(content) if isinstance(content, bytes) else os.stat(content).st_size) >= _LONG_BYTES
    except OSError:  # the worker says what is wrong with it
        return False


def _on(loop: asyncio.AbstractEventLoop, idle: asyncio.Queue[_Worker], worker: _Worker) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(idle.put_nowait, worker)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Processes that are started meanwhile keep out of what concerns the app alone.

    They do not import its main module: a script without `if __name__ == "__main__"` would run once more in each. And
    they do not hear a terminal interrupt the whole group, from their first moment on: a blocked signal is inherited.
    """
    main = sys.modules["__main__"]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _initialise() -> None:
    """Workers end when the app ends them, or is itself ended by force.

    A few bytes can make FFmpeg allocate gigabytes (an MP4 whose index claims so many samples): memory is bounded.
    """
    threading.Thread(target=_end_with_the_app, name="parent", daemon=True).start()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    in_use = int(status["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + _WORKER_BYTES, in_use + _WORKER_BYTES))


def _end_with_the_app() -> None:
    app = parent_process()
    assert app is not None
    app.join()
    os._exit(1)


def _decode(content: bytes | str, into: SharedWaveformRef, limits: DecodeLimits, channel: Channel) -> None:
    """Runs in a worker. A waveform that nobody wants any more ends the work."""
    with contextlib.suppress(DecodingCancelled), into.writer() as out, _open(content) as file:
        decode_into(file, out, limits=limits, channel=channel, cancelled=lambda: not into.wanted())


def _decode_channels(content: bytes | str, into: Sequence[SharedWaveformRef], limits: DecodeLimits) -> int:
    """The same for every channel by itself; how many there are."""
    with contextlib.ExitStack() as stack, contextlib.suppress(DecodingCancelled):
        outs = [stack.enter_context(ref.writer()) for ref in into]
        file = stack.enter_context(_open(content))
        return decode_channels_into(file, outs, limits=limits, cancelled=lambda: not into[0].wanted())
    return 0


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
