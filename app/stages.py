"""How the rooms become stages of the device: what `engine` steps without knowing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from audio.shared import Waveform
from audio.span import SAMPLE_RATE
from engine.stage import Output
from vad.options import SegmentationOptions

if TYPE_CHECKING:
    from vad.segmenter import SegmentationJob, Segmenter

_TOGETHER = 16
"""Recordings that are looked at in one step; the others wait for the next."""


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


class VadStage:
    """Voice activity detection: a call is a waveform and its options, the answer its spans of speech."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._jobs: dict[int, SegmentationJob] = {}

    def describe(self) -> Mapping[str, Any]:
        return {}

    def submit(self, call_id: int, waveform: Waveform, request: SegmentationOptions) -> None:
        self._jobs[call_id] = self._segmenter.start(waveform, request)

    def cancel(self, call_id: int) -> None:
        self._jobs.pop(call_id, None)

    def step(self) -> Iterable[Output]:
        """The next piece of the recordings that wait, in turn, so that a long one holds up no short one."""
        from vad.segmenter import step_together

        turn = [(call_id, self._jobs.pop(call_id)) for call_id in list(self._jobs)[:_TOGETHER]]
        step_together([job for _, job in turn])
        for call_id, job in turn:
            if not job.done:
                self._jobs[call_id] = job
            elif job.error is not None:
                yield Output(call_id, error=job.error)
            else:
                yield Output(call_id, job.spans)

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def close(self) -> None:
        self._jobs.clear()
