"""How the rooms become stages of the device: what `engine` steps without knowing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from audio.shared import Waveform
from engine.stage import Output
from vad.options import SegmentationOptions

if TYPE_CHECKING:
    from vad.segmenter import Segmentation, Segmenter


class VadStage:
    """Voice activity detection: a call is a waveform and its options, the answer its spans of speech."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._jobs: dict[int, Segmentation] = {}

    def describe(self) -> Mapping[str, Any]:
        return {}

    def submit(self, call_id: int, waveform: Waveform, request: SegmentationOptions) -> None:
        self._jobs[call_id] = self._segmenter.start(waveform, request)

    def cancel(self, call_id: int) -> None:
        self._jobs.pop(call_id, None)

    def step(self) -> Iterable[Output]:
        """A bounded piece of every recording that waits, so that a long one holds up no short one."""
        outputs = []
        for call_id, job in list(self._jobs.items()):
            job.step()
            if job.done:
                del self._jobs[call_id]
                outputs.append(Output(call_id, tuple(job.spans)))
        return outputs

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def close(self) -> None:
        self._jobs.clear()
