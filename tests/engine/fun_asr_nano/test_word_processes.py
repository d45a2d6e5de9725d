"""Words from other processes: the same as in this one, whatever becomes of those."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.fun_asr_nano import word_processes
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.placing import Lattice, Placer
from engine.fun_asr_nano.timing import WordTimer
from engine.fun_asr_nano.word_processes import WordProcesses, WordsFailed

ROOT = Path(__file__).parents[3]
TEXTS = ("今天天气很好", "don't, 3.5% of it", "", "so, ask not!", "😀 e\u0301", "a" * 200)


class Fatal(Placer):
    """Ends its process with a segment of two rows, and fails with one of three."""

    def words(self, lattice: Lattice) -> Any:
        rows = np.diff(lattice.row_offsets).tolist()
        if rows == [2]:
            os._exit(1)
        if rows == [3]:
            raise MemoryError("too much")
        return super().words(lattice)


@pytest.fixture(scope="module")
def aligner(checkpoint: Checkpoint) -> CtcAligner:
    head = checkpoint.ctc_head()
    assert head is not None
    assert checkpoint.ctc_tokenizer is not None
    return CtcAligner(head, checkpoint.ctc_tokenizer, row_seconds=0.06)


@pytest.fixture(scope="module")
def processes(aligner: CtcAligner) -> Iterator[WordProcesses]:
    made = WordProcesses(Fatal(aligner.placer._spelled, row_seconds=0.06), 1)
    yield made
    made.close()
    assert not [child for child in multiprocessing.active_children() if child.name == "tinglu-words"]


def jobs(seed: int = 0, rows: int = 120) -> list[AlignmentJob]:
    generator = torch.Generator().manual_seed(seed)
    return [AlignmentJob(torch.randn(rows, 32, generator=generator), text) for text in TEXTS]


def short(rows: int) -> list[AlignmentJob]:
    return [AlignmentJob(torch.zeros(rows, 32), "a")]


def test_the_same_words_as_here(aligner: CtcAligner, processes: WordProcesses) -> None:
    batches = [jobs(seed) for seed in range(4)]
    futures = [processes.submit(aligner.lattice(batch)) for batch in batches]
    for batch, future in zip(batches, futures, strict=True):
        assert future.result() == aligner.words(batch)
        assert [words is not None for words in future.result()] == [True, True, False, True, True, False]
    assert processes.submit(aligner.lattice([])).result() == []
    assert processes.submit(aligner.lattice(jobs()[2:3])).result() == [None]


def test_a_process_needs_no_torch() -> None:
    code = "import sys, engine.fun_asr_nano.word_processes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_process_that_hangs_is_replaced(
    aligner: CtcAligner, processes: WordProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = aligner.words(jobs())
    (child,) = [child for child in multiprocessing.active_children() if child.name == "tinglu-words"]
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    monkeypatch.setattr(word_processes, "_ANSWER_SECONDS", 10.0)
    monkeypatch.setattr(word_processes, "_STOP_SECONDS", 0.1)
    assert processes.submit(aligner.lattice(jobs())).result() == expected


def test_a_process_that_was_killed_is_replaced(aligner: CtcAligner, processes: WordProcesses) -> None:
    expected = aligner.words(jobs())
    (child,) = [child for child in multiprocessing.active_children() if child.name == "tinglu-words"]
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert processes.submit(aligner.lattice(jobs())).result() == expected


def test_a_batch_that_kills_or_fails_is_given_up_and_the_next_one_is_not(
    aligner: CtcAligner, processes: WordProcesses
) -> None:
    futures = [processes.submit(aligner.lattice(batch)) for batch in (short(2), short(3), jobs())]
    with pytest.raises(WordsFailed, match="died twice"):
        futures[0].result()
    with pytest.raises(WordsFailed, match="MemoryError: too much"):
        futures[1].result()
    assert futures[2].result() == aligner.words(jobs())


def test_the_timer_gives_up_times_and_never_fails(
    aligner: CtcAligner, processes: WordProcesses, caplog: pytest.LogCaptureFixture
) -> None:
    timer = WordTimer(aligner, device="cpu", processes=processes)
    assert timer.capacity == 2
    futures = [timer.start(batch) for batch in (short(3), jobs())]
    wait(futures)
    assert futures[0].result() == [None]
    assert futures[1].result() == aligner.words(jobs())
    assert "word times of 1 segments could not be made" in caplog.text
