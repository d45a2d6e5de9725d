"""Word times off the critical path: one thread aligns batches while the next tokens are decoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from engine.fun_asr_nano.alignment import AlignmentJob
from engine.fun_asr_nano.streams import SideStream
from engine.recognition import Word

_log = logging.getLogger(__name__)

Words = tuple[Word, ...] | None


class Aligner(Protocol):
    def words(self, jobs: Sequence[AlignmentJob]) -> list[Words]:
        """Words with times for each text, None where it does not fit."""


class WordTimer:
    """Runs an aligner in a thread of its own, and on a GPU on a stream of its own."""

    def __init__(self, aligner: Aligner, *, device: str) -> None:
        self._aligner = aligner
        self._stream = SideStream(device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="word-times")

    def start(self, jobs: Sequence[AlignmentJob]) -> Future[list[Words]]:
        """Align in the background. The rows in the jobs must be complete, and stay alive until the future is done."""
        return self._thread.submit(self._words, jobs)

    def _words(self, jobs: Sequence[AlignmentJob]) -> list[Words]:
        try:
            with self._stream.use():
                return self._aligner.words(jobs)
        except Exception:  # a text without word times is worth more than no text
            _log.exception("word times of %d segments could not be made", len(jobs))
            return [None] * len(jobs)

    def close(self) -> None:
        self._thread.shutdown()
