"""Waveforms in shared memory: who can read them, and when they are gone."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket

import numpy as np
import pytest

from audio.shared import SharedWaveform, SharedWaveformRef


def read_in_another_process(ref: SharedWaveformRef, answer: multiprocessing.connection.Connection) -> None:
    answer.send((float(ref.open().sum()), os.getpid()))


def test_a_waveform_comes_back_unchanged() -> None:
    waveform = np.linspace(-1, 1, 12_345, dtype=np.float32)
    with SharedWaveform.of(waveform) as shared:
        assert shared.samples == 12_345
        assert shared.duration == pytest.approx(12_345 / 16_000)
        np.testing.assert_array_equal(shared.ref().open(), waveform)


def test_a_strided_or_double_precision_array_is_copied_as_a_waveform() -> None:
    samples = np.linspace(-1, 1, 1_000)[::2]
    with SharedWaveform.of(samples) as shared:
        np.testing.assert_array_equal(shared.ref().open(), samples.astype(np.float32))


def test_another_process_reads_it() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with SharedWaveform.of(np.full(16_000, 0.5, np.float32)) as shared:
        process = context.Process(target=read_in_another_process, args=(shared.ref(), theirs))
        process.start()
        assert ours.poll(30)
        total, pid = ours.recv()
        process.join(10)
    assert process.exitcode == 0
    assert total == 8_000.0
    assert pid != os.getpid()


def write_in_another_process(ref: SharedWaveformRef) -> None:
    with ref.writer() as file:
        for value in (0.25, 0.5):
            file.write(np.full(100, value, np.float32).data)


def test_another_process_fills_it() -> None:
    with SharedWaveform() as shared:
        assert shared.samples == 0
        process = multiprocessing.get_context("spawn").Process(target=write_in_another_process, args=(shared.ref(),))
        process.start()
        process.join(30)
        assert process.exitcode == 0
        assert shared.samples == 200
        np.testing.assert_array_equal(shared.ref().open()[[0, 99, 100, 199]], [0.25, 0.25, 0.5, 0.5])


def test_a_writer_knows_whether_it_is_still_wanted() -> None:
    shared = SharedWaveform()
    ref = shared.ref()
    assert ref.wanted()
    shared.close()
    assert not ref.wanted()


def test_a_reused_descriptor_number_is_not_taken_for_the_waveform() -> None:
    shared = SharedWaveform.of(np.ones(10, np.float32))
    ref = shared.ref()
    shared.close()
    with SharedWaveform.of(np.zeros(10, np.float32)) as other:
        assert other.ref().path == ref.path
        assert not ref.wanted()
        with pytest.raises(FileNotFoundError):
            ref.open()
        with pytest.raises(FileNotFoundError):
            ref.writer()


@pytest.mark.parametrize("kind", ["socket", "pipe", "directory"])
def test_a_reused_number_may_be_no_file_at_all(kind: str) -> None:
    """The owner left, and the next connection got its descriptor: no such error may end the reader."""
    shared = SharedWaveform.of(np.ones(8, np.float32))
    ref = shared.ref()
    number = int(ref.path.rpartition("/")[2])
    if kind == "socket":
        ends = [each.detach() for each in socket.socketpair()]
    else:
        ends = list(os.pipe()) if kind == "pipe" else [os.open("/", os.O_RDONLY)]
    os.dup2(ends[0], number)
    try:
        assert not ref.wanted()
        for attempt in (ref.open, ref.writer):
            with pytest.raises(FileNotFoundError):
                attempt()
    finally:
        shared.close()
        for end in ends:
            os.close(end)


def test_a_reference_is_small_and_picklable() -> None:
    with SharedWaveform.of(np.zeros(100_000, np.float32)) as shared:
        assert pickle.loads(pickle.dumps(shared.ref())) == shared.ref()
        assert len(pickle.dumps(shared.ref())) < 300


def test_readers_cannot_write() -> None:
    with SharedWaveform.of(np.zeros(10, np.float32)) as shared:
        view = shared.ref().open()
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1.0


def test_an_empty_waveform() -> None:
    with SharedWaveform.of(np.empty(0, np.float32)) as shared:
        assert len(shared.ref().open()) == 0


def test_what_a_reader_has_opened_outlives_the_owner() -> None:
    shared = SharedWaveform.of(np.ones(5_000, np.float32))
    view = shared.ref().open()
    shared.close()
    assert view.sum() == 5_000


def test_a_closed_waveform_cannot_be_opened() -> None:
    shared = SharedWaveform.of(np.ones(10, np.float32))
    ref = shared.ref()
    shared.close()
    shared.close()
    with pytest.raises(FileNotFoundError):
        ref.open()


def test_neither_owner_nor_reader_keeps_a_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    views = []
    for _ in range(20):
        with SharedWaveform.of(np.ones(10, np.float32)) as shared:
            views.append(shared.ref().open())
    # A mapping holds one descriptor of its own for as long as it lives.
    views.clear()
    assert len(os.listdir("/proc/self/fd")) == before
