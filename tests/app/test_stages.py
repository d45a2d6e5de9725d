from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from app.stages import RECOGNIZER, SpeechRequest, VadStage
from audio.span import Span
from engine.recognition import DecodingOptions, Recognition
from engine.stage import Output
from vad.options import SegmentationOptions

SPOKEN = (Span(0.0, 1.0),)
SPANS = SpeechRequest(SegmentationOptions())
SPEECH = SpeechRequest(SegmentationOptions(), DecodingOptions(language="en"))


@dataclass
class Job:
    """Done after so many pieces; a waveform's first sample says how many."""

    pieces: int
    frames_ahead: int
    spans: tuple[Span, ...] = SPOKEN
    error: ValueError | None = None

    @property
    def done(self) -> bool:
        return self.pieces == 0


@dataclass
class Step:
    jobs: Sequence[Job]
    reached: bool

    def finish(self) -> None:
        assert self.reached
        for job in self.jobs:
            job.pieces -= 1


@dataclass
class Device:
    """Stands in for a segmenter whose device is `quick`, or ready when the test says so."""

    quick: bool
    steps: list[Step] = field(default_factory=list)

    def start(self, waveform: Any, options: Any) -> Job:
        return Job(int(waveform[0]), len(waveform) // 160)

    def begin(self, jobs: Sequence[Job]) -> Step:
        self.steps.append(Step(jobs, self.quick))
        return self.steps[-1]


def stage(device: Device) -> VadStage:
    return VadStage(device)  # type: ignore[arg-type]


def sound(pieces: int = 1, seconds: float = 1.0) -> Any:
    return np.full(round(16_000 * seconds), pieces, np.float32)


def step(of: VadStage) -> list[Output]:
    return list(of.step())


def test_spans_alone_or_with_what_follows() -> None:
    vad = stage(Device(quick=True))
    vad.submit(1, sound(), SPANS)
    vad.submit(2, sound(), SPEECH)
    following = (RECOGNIZER, Recognition(SPOKEN, DecodingOptions(language="en")))
    assert step(vad) == [Output(1, SPOKEN), Output(2, SPOKEN, then=following)]
    assert not vad.busy


@pytest.mark.parametrize("quick", [True, False])
def test_a_long_recording_holds_up_no_short_one(quick: bool) -> None:
    device = Device(quick)
    vad = stage(device)
    vad.submit(1, sound(pieces=3), SPANS)
    vad.submit(2, sound(), SPANS)
    answered = []
    for _ in range(3):
        answered += [output.call_id for output in step(vad)]
        device.steps[-1].reached = True
        vad.submit(10 + len(answered), sound(), SPANS)
    while vad.busy:
        answered += [output.call_id for output in step(vad)]
        device.steps[-1].reached = True
    assert answered[0] == 2
    assert sorted(answered) == sorted(set(answered))
    assert 1 in answered


def test_nothing_waits_for_a_device_that_is_at_work() -> None:
    device = Device(quick=False)
    vad = stage(device)
    vad.submit(1, sound(), SPANS)
    assert step(vad) == step(vad) == []
    vad.submit(2, sound(), SPANS)
    assert step(vad) == []
    assert len(device.steps) == 1
    device.steps[0].reached = True
    assert [output.call_id for output in step(vad)] == [1]
    assert len(device.steps) == 2
    assert vad.busy


def test_what_is_cancelled_meanwhile_is_not_answered() -> None:
    device = Device(quick=False)
    vad = stage(device)
    vad.submit(1, sound(), SPEECH)
    vad.submit(2, sound(), SPEECH)
    step(vad)
    vad.cancel(1)
    vad.cancel(1)
    device.steps[0].reached = True
    assert [output.call_id for output in step(vad)] == [2]
    assert not vad.busy


def test_a_batch_is_bounded_with_its_padding() -> None:
    device = Device(quick=True)
    vad = stage(device)
    for call_id in range(40):
        vad.submit(call_id, sound(seconds=60.0 if call_id == 3 else 1.0), SPANS)
    for call_id in range(40, 300):
        vad.submit(call_id, sound(), SPANS)
    while vad.busy:
        step(vad)
    sizes = [len(step.jobs) for step in device.steps]
    assert sizes[0] == 16
    assert max(sizes) == 128
    assert sum(sizes) == 300
