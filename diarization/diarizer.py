"""The public door: a waveform and its spans of speech in, turns of speakers out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import Span
from diarization.clustering import Labels, WindowSequence, centres, cluster
from diarization.embedding import Embeddings, SpeakerEmbedder
from diarization.known import names_of, reference_embedding
from diarization.options import DiarizationOptions
from diarization.outcome import Diarization as Diarization
from diarization.pauses import split_at_pauses
from diarization.timeline import SpeakerTurn, joined, turns_of
from diarization.windows import Window, cut, gather, windows_of

_CPU_WINDOWS, _GPU_WINDOWS = 32, 512
"""Windows embedded in one step: a quarter of a second on a CPU core, tens of milliseconds on a GPU."""


LONGEST_PAUSE = 0.8
"""Seconds of silence inside a turn; what a speaker says behind a longer one is another turn."""

_NO_EMBEDDINGS = np.empty((0, 0), np.float32)


class DiarizationJob:
    """The diarization of one waveform in bounded pieces of work. Jobs do not know each other.

    Attributes:
        windows: what is embedded; known once the first step is done.
        error: why the waveform cannot be diarized, once known; the job is done then.
    """

    def __init__(
        self, embedder: SpeakerEmbedder, waveform: Waveform, spans: Sequence[Span], options: DiarizationOptions
    ) -> None:
        self.embedder = embedder
        self._waveform = waveform
        self._spans = tuple(spans)
        self._options = options
        self._parts: list[Span] | None = None
        self.windows: list[Window] = []
        self._embedded: list[Embeddings] = []
        self._count = 0
        self._references: list[Embeddings] = []
        self._result: Diarization | None = None
        self.error: ValueError | None = None

    @property
    def done(self) -> bool:
        return self._result is not None or self.error is not None

    @property
    def result(self) -> Diarization:
        """The answer of a job that is done.

        Raises:
            ValueError: the waveform, or a reference, holds NaN or infinite samples.
            RuntimeError: the job is not done.
        """
        if self.error is not None:
            raise self.error
        if self._result is None:
            raise RuntimeError("the job is not done: step it on")
        return self._result

    def step(self) -> None:
        """Embed some windows; with the last of them comes the result. Nothing happens once `done`."""
        step_together([self])

    def wanted(self, most: int) -> Waveform:
        """(windows, samples): what is to be embedded next, at most so many windows."""
        return cut(self._waveform, self._next(most))

    def gathered(self, most: int) -> tuple[list[Waveform], list[int]]:
        """The same as `windows.gather` gives it."""
        return gather(self._waveform, self._next(most))

    def _next(self, most: int) -> list[Window]:
        if self._parts is None:
            self._parts = split_at_pauses(self._waveform, self._spans)
            self.windows = windows_of(self._parts, len(self._waveform))
        return self.windows[self._count : self._count + most]

    def take(self, embeddings: Embeddings) -> None:
        """Accept the embeddings of the windows that come next."""
        self._embedded.append(embeddings)
        self._count += len(embeddings)
        self._check(embeddings)

    def follow(self) -> None:
        """Do what does not need the batch: one reference, or once all windows are there, the result."""
        if self.done or self._count < len(self.windows):
            return
        known = self._options.known_speakers
        if len(self._references) < len(known):
            self._references.append(reference_embedding(self.embedder, known[len(self._references)]))
            self._check(self._references[-1])
        else:
            self._result = self.concluded(np.concatenate(self._embedded) if self._embedded else _NO_EMBEDDINGS)

    def _check(self, embeddings: Embeddings) -> None:
        if not np.isfinite(embeddings).all():
            self.error = ValueError("the waveform holds samples that are NaN or infinite")

    def turns(self, labels: Labels, certain: NDArray[np.bool_]) -> list[SpeakerTurn]:
        """Turns of the speakers of all windows; `certain` says which windows fit theirs clearly."""
        assert self._parts is not None
        return joined(turns_of(self._waveform, self._parts, self.windows, labels, certain), LONGEST_PAUSE)

    def concluded(self, embeddings: Embeddings) -> Diarization:
        """The result, given the embeddings of all windows."""
        if not self.windows:
            return Diarization()
        options, calibration = self._options, self.embedder.calibration
        sequence = WindowSequence.of(self.windows, embeddings)
        labels = cluster(sequence, calibration, fewest=options.fewest, most=options.most)
        certain = _certain(embeddings, labels, calibration.switch)
        turns, labels_of = _numbered(self.turns(labels, certain))
        names: list[str | None] = [None] * len(labels_of)
        if self._references and turns:
            means = np.stack([embeddings[labels == label].mean(0) for label in labels_of])
            known = [speaker.name for speaker in options.known_speakers]
            names = names_of(means, np.stack(self._references), known, calibration.known)
        warnings: tuple[str, ...] = ()
        if len(labels_of) < options.fewest:
            warnings = (f"asked for at least {options.fewest} speakers, found speech of {len(labels_of)}",)
        return Diarization(tuple(turns), tuple(names), warnings)


class Diarizer:
    """Finds out who speaks when. Holds nothing but the network, so calls and threads may share it."""

    def __init__(self, embedder: SpeakerEmbedder) -> None:
        self.embedder = embedder

    def start(
        self, waveform: Waveform, spans: Sequence[Span], options: DiarizationOptions | None = None
    ) -> DiarizationJob:
        """A job that works piece by piece. It reads the samples as it goes: do not change them.

        Args:
            spans: where there is speech, ascending, without overlap; what lies beyond the waveform is left out.

        Raises:
            ValueError: the waveform is not a 1-D float32 array, or the spans are not in order.
        """
        if waveform.ndim != 1 or waveform.dtype != np.float32:
            raise ValueError(f"a waveform is 1-D float32, not {waveform.ndim}-D {waveform.dtype}")
        for before, after in pairwise(spans):
            if after.start < before.end:
                raise ValueError(f"spans overlap or are out of order at {after.start:.3f} s")
        return DiarizationJob(self.embedder, waveform, spans, options or DiarizationOptions())

    def diarize(
        self, waveform: Waveform, spans: Sequence[Span], options: DiarizationOptions | None = None
    ) -> Diarization:
        """The whole answer at once; raises what `start` raises."""
        job = self.start(waveform, spans, options)
        while not job.done:
            job.step()
        return job.result


def step_windows(device: torch.device) -> int:
    """How many windows a step embeds at most."""
    return _CPU_WINDOWS if device.type == "cpu" else _GPU_WINDOWS


def step_together(jobs: Sequence[DiarizationJob]) -> None:
    """One step of several jobs of one diarizer: their windows share a batch, in turn. Finished jobs rest."""
    waiting = [job for job in jobs if not job.done]
    if not waiting:
        return
    embedder = waiting[0].embedder
    room = step_windows(embedder.device)
    pieces: list[Waveform] = []
    firsts: list[int] = []
    counts = []
    for job in waiting:
        of_job, begin = job.gathered(max(1, room // len(waiting)))
        at = sum(len(piece) for piece in pieces)
        firsts += [at + first for first in begin]
        pieces += of_job
        counts.append(len(begin))
    embedded = embedder.embed(pieces, firsts) if firsts else _NO_EMBEDDINGS
    done = 0
    for job, count in zip(waiting, counts, strict=True):
        if count:
            job.take(embedded[done : done + count])
            done += count
        job.follow()


def _certain(embeddings: Embeddings, labels: Labels, margin: float) -> NDArray[np.bool_]:
    """(N,) whether a window is nearer to its speaker than to any other by a margin of cosine."""
    scores = embeddings @ centres(embeddings, labels).T
    rows = np.arange(len(labels))
    own = scores[rows, labels].copy()
    scores[rows, labels] = -np.inf
    certain: NDArray[np.bool_] = own - scores.max(1) >= margin
    return certain


def _numbered(turns: Sequence[SpeakerTurn]) -> tuple[list[SpeakerTurn], list[int]]:
    """Turns with speakers numbered by appearance, and the label that each number had before."""
    labels = list(dict.fromkeys(turn.speaker for turn in turns))
    numbers = {label: number for number, label in enumerate(labels)}
    return [SpeakerTurn(turn.start, turn.end, numbers[turn.speaker]) for turn in turns], labels
