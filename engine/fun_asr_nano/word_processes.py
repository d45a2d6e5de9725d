"""Words in processes of their own: merging them holds the interpreter's lock, which the language model's steps need."""

from __future__ import annotations

import logging
import multiprocessing
import queue
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import numpy as np

from engine.fun_asr_nano.placing import Lattice, Placer
from engine.packed import PackedWords

_log = logging.getLogger(__name__)

_STOP_SECONDS = 2.0
_ANSWER_SECONDS = 60.0
"""A batch takes a tenth of a second, and the first one a few more: then the process hangs."""

Packed = list[PackedWords | None]


class WordsFailed(RuntimeError):
    """No words came of a batch; the message says why."""


class WordProcesses:
    """A few processes that place words, a batch each at a time.

    One that dies is started again with the next batch; what it was at is tried once more, because mostly it was killed
    from outside, and then given up, because what kills two would kill this process too.
    """

    def __init__(self, placer: Placer, count: int) -> None:
        """Start them. Each ends when it is told to, or when this process is gone."""
        self._workers: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for _ in range(count):
            self._workers.put(_Worker(placer))
        self._count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="words")

    @property
    def count(self) -> int:
        return self._count

    def submit(self, lattice: Lattice) -> Future[Packed]:
        """Words of each segment in the background; the future may hold `WordsFailed`."""
        return self._threads.submit(self._ask, lattice)

    def close(self) -> None:
        """Finish what was submitted and end the processes."""
        self._threads.shutdown()
        for _ in range(self._count):
            self._workers.get().stop()

    def _ask(self, lattice: Lattice) -> Packed:
        worker = self._workers.get()
        try:
            try:
                return worker.ask(lattice)
            except (EOFError, OSError):
                _log.warning("a process that places words is gone; starting another")
            try:
                worker.start()
                return worker.ask(lattice)
            except (EOFError, OSError) as error:
                raise WordsFailed("a process that places words died twice over a batch") from error
        finally:
            self._workers.put(worker)


class _Worker:
    """A process and the connection to it."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self.start()

    def start(self) -> None:
        """Start the process, anew if there was one."""
        self.stop()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        with theirs:
            self._process = context.Process(
                target=_serve, args=(theirs, self._placer), name="tinglu-words", daemon=True
            )
            self._process.start()

    def ask(self, lattice: Lattice) -> Packed:
        """Raises EOFError or OSError if the process is gone or hangs, `WordsFailed` if it could not do it."""
        if self._connection is None:
            raise EOFError
        self._connection.send((replace(lattice, values=lattice.values[:0]), lattice.values.shape))
        if lattice.values.size:
            self._connection.send_bytes(lattice.values.data.cast("B"))  # as it is: pickle would copy it
        if not self._connection.poll(_ANSWER_SECONDS):
            raise TimeoutError
        answer = self._connection.recv()
        if isinstance(answer, str):
            raise WordsFailed(answer)
        found: Packed = answer
        return found

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join(_STOP_SECONDS)
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(connection: Connection, placer: Placer) -> None:
    """The process: answers until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts everybody; the app tells the device to stop
    with suppress(EOFError, OSError):
        while True:
            head, shape = connection.recv()
            data = connection.recv_bytes() if 0 not in shape else b""
            connection.send(_answer(placer, replace(head, values=np.frombuffer(data, np.float32).reshape(shape))))


def _answer(placer: Placer, lattice: Lattice) -> Packed | str:
    try:
        return [None if words is None else PackedWords.of(words) for words in placer.words(lattice)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
