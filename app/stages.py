"""How the rooms become stages of the device: what `engine` steps without knowing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from audio.shared import Waveform
from audio.span import SAMPLE_RATE
from engine.recognition import DecodingOptions, Recognition
from engine.stage import Output
from vad.options import SegmentationOptions

if TYPE_CHECKING:
    from vad.segmenter import SegmentationJob, Segmenter, Step

VAD = "vad"
RECOGNIZER = "recognizer"
"""Names of the stages."""

_TOGETHER = 128
_FRAMES_TOGETHER = 96_000
"""Recordings that are looked at in one step, and their frames with padding, a quarter of an hour; the others wait."""


def load_vad(device: str) -> VadStage:
    """Runs in the device process: the network on its device, and the endpoint machine compiled.

    Raises:
        VadWeightsError: the weights are missing or broken.
    """
    from vad.network import FsmnNetwork
    from vad.segmenter import Segmenter

    segmenter = Segmenter(FsmnNetwork.load(device=device))
    segmenter.segments(np.zeros(SAMPLE_RATE, np.float32))
    return VadStage(segmenter)


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A call on the detector: how to cut the recording, and how to decode what was cut.

    With `decoding` the call goes on in the recogniser, and its hypotheses follow the spans.
    """

    segmentation: SegmentationOptions
    decoding: DecodingOptions | None = None


class VadStage:
    """Voice activity detection: a call is a waveform and a `SpeechRequest`, the answer its spans of speech."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._jobs: dict[int, SegmentationJob] = {}
        self._under_way: tuple[list[tuple[int, SegmentationJob]], Step] | None = None
        self._decoding: dict[int, DecodingOptions] = {}

    def describe(self) -> Mapping[str, Any]:
        return {}

    def submit(self, call_id: int, waveform: Waveform, request: SpeechRequest) -> None:
        self._jobs[call_id] = self._segmenter.start(waveform, request.segmentation)
        if request.decoding is not None:
            self._decoding[call_id] = request.decoding

    def cancel(self, call_id: int) -> None:
        self._jobs.pop(call_id, None)
        self._decoding.pop(call_id, None)

    def step(self) -> Iterable[Output]:
        """The next piece of the recordings that wait, in turn, so that a long one holds up no short one.

        A GPU works on it while other stages do their steps, and a later step hands out what was found.
        """
        yield from self._found()
        if self._jobs and self._under_way is None:
            turn = self._turn()
            self._under_way = turn, self._segmenter.begin([job for _, job in turn])
            yield from self._found()

    def _turn(self) -> list[tuple[int, SegmentationJob]]:
        turn: list[tuple[int, SegmentationJob]] = []
        longest = 0
        for call_id, job in self._jobs.items():
            longest = max(longest, job.frames_ahead)
            if turn and (len(turn) == _TOGETHER or (len(turn) + 1) * longest > _FRAMES_TOGETHER):
                break
            turn.append((call_id, job))
        return turn

    def _found(self) -> Iterable[Output]:
        """What the step under way has found, if it is over."""
        if self._under_way is None or not self._under_way[1].reached:
            return
        (turn, step), self._under_way = self._under_way, None
        step.finish()
        for call_id, job in turn:
            if self._jobs.pop(call_id, None) is None:  # cancelled meanwhile
                continue
            if not job.done:
                self._jobs[call_id] = job
                continue
            decoding = self._decoding.pop(call_id, None)
            if job.error is not None:
                yield Output(call_id, error=job.error)
            elif decoding is None or not job.spans:
                yield Output(call_id, job.spans)
            else:
                yield Output(call_id, job.spans, then=(RECOGNIZER, Recognition(tuple(job.spans), decoding)))

    @property
    def busy(self) -> bool:
        return bool(self._jobs) or self._under_way is not None

    def close(self) -> None:
        self._jobs.clear()
        self._under_way = None
