"""Word times off the critical path: batches are aligned while the next tokens are decoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from audio.streams import SideStream
from engine.fun_asr_nano.alignment import AlignmentJob
from engine.fun_asr_nano.placing import Lattice
from engine.fun_asr_nano.word_processes import Packed, WordProcesses
from engine.recognition import Word

_log = logging.getLogger(__name__)

Words = Sequence[Word] | None


class Aligner(Protocol):
    def words(self, jobs: Sequence[AlignmentJob]) -> Sequence[Words]:
        """Words with times for each text, None where it does not fit."""

    def lattice(self, jobs: Sequence[AlignmentJob]) -> Lattice:
        """The part of it that needs the device."""


class WordTimer:
    """Runs an aligner in a thread of its own, on a GPU on a stream of its own; what needs no device in processes."""

    def __init__(self, aligner: Aligner, *, device: str, processes: WordProcesses | None = None) -> None:
        """`processes` are closed with the timer; without any, the thread does all of the work."""
        self._aligner = aligner
        self._stream = SideStream(device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="word-times")
        self._processes = processes

    @property
    def capacity(self) -> int:
        """How many batches it works on at once; more would wait."""
        return 1 if self._processes is None else 1 + self._processes.count

    def start(self, jobs: Sequence[AlignmentJob]) -> Future[Sequence[Words]]:
        """Align in the background. The rows in the jobs must be complete, and stay alive until the future is done.

        The future never fails: a text without word times is worth more than no text.
        """
        found: Future[Sequence[Words]] = Future()
        self._thread.submit(self._begin, jobs, found)
        return found

    def close(self) -> None:
        self._thread.shutdown()
        if self._processes is not None:
            self._processes.close()

    def _begin(self, jobs: Sequence[AlignmentJob], found: Future[Sequence[Words]]) -> None:
        try:
            with self._stream.use():
                if self._processes is None:
                    found.set_result(self._aligner.words(jobs))
                    return
                lattice = self._aligner.lattice(jobs)
            self._processes.submit(lattice).add_done_callback(lambda placed: _settle(found, placed, len(jobs)))
        except Exception as error:
            _give_up(found, len(jobs), error)


def _settle(found: Future[Sequence[Words]], placed: Future[Packed], count: int) -> None:
    error = placed.exception()
    if error is None:
        found.set_result(placed.result())
    else:
        _give_up(found, count, error)


def _give_up(found: Future[Sequence[Words]], count: int, error: BaseException) -> None:
    _log.error("word times of %d segments could not be made", count, exc_info=error)
    found.set_result([None] * count)
