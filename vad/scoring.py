"""P(silence) and level of a waveform, one bounded piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from audio.fbank import FRAME_SAMPLES, HOP_SAMPLES, frame_count
from audio.shared import Waveform
from audio.streams import Mark
from vad.network import FsmnNetwork

PIECE_SECONDS = 60.0
"""How much of a file one step scores: 0.12 s of work for one CPU core, some 40 MB of memory."""

_POWER_FLOOR = 1e-10
"""-100 dBFS, for the logarithm of digital silence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a scorer scores next: `frames` rows of features from row `skip` of those that `samples` give."""

    scorer: Scorer
    samples: Waveform
    skip: int
    frames: int


class Scorer:
    """Scores one waveform; `step` scores the next piece, so a device can do other work in between.

    Attributes:
        p_silence: (frames,) float32, one score per 10 ms; valid up to `scored`.
        level_db: (ceil(samples / 160),) float32, mean power of every 10 ms relative to full scale; valid up to
            `scored`, and to its end once `done`.
        scored: frames scored so far.
        error: set, and the scorer done, when it met samples that are NaN or infinite.
    """

    def __init__(self, network: FsmnNetwork, waveform: Waveform, piece_seconds: float = PIECE_SECONDS) -> None:
        """
        Raises:
            ValueError: the waveform is not a 1-D float32 array, or a piece is shorter than one frame.
        """
        if waveform.ndim != 1 or waveform.dtype != np.float32:
            raise ValueError(f"a waveform is 1-D float32, not {waveform.ndim}-D {waveform.dtype}")
        self.network = network
        self.waveform = waveform
        self.piece_frames = round(piece_seconds * 100)
        if self.piece_frames < 1:
            raise ValueError(f"piece_seconds is {piece_seconds}, it must be at least 0.01")
        self.p_silence = np.empty(frame_count(len(waveform)), np.float32)
        self.level_db = np.empty(-(-len(waveform) // HOP_SAMPLES), np.float32)
        self.scored = 0
        self.memory: Tensor | None = None
        self.error: ValueError | None = None
        if self.done:
            self._check(waveform)
            self._measure(0, waveform)

    @property
    def frames_ahead(self) -> int:
        """How many frames the next piece has."""
        return min(self.piece_frames, len(self.p_silence) - self.scored)

    @property
    def done(self) -> bool:
        return self.scored == len(self.p_silence) or self.error is not None

    def step(self) -> None:
        """Score the next piece; nothing happens once `done`."""
        step_scorers([self])

    def take(self, p_silence: NDArray[np.float32], memory: Tensor) -> None:
        """Accept the scores of the piece that begins at `scored`."""
        first, self.scored = self.scored, self.scored + len(p_silence)
        self.p_silence[first : self.scored] = p_silence
        self.memory = None if self.done else memory
        stop = len(self.waveform) if self.done else self.scored * HOP_SAMPLES
        self._measure(first, self.waveform[first * HOP_SAMPLES : stop])

    def piece(self) -> Piece | None:
        """The next frames to score, or None if their samples are unusable."""
        context = self.network.sizes.lfr_m // 2
        frames = len(self.p_silence)
        first, last = self.scored, min(frames, self.scored + self.piece_frames)
        low, high = max(0, first - context), min(frames, last + context)
        samples = self.waveform[low * HOP_SAMPLES : (high - 1) * HOP_SAMPLES + FRAME_SAMPLES]
        behind = self.waveform[low * HOP_SAMPLES + len(samples) :] if last == frames else samples[:0]
        if not (self._check(samples) and (not len(behind) or self._check(behind))):
            return None
        return Piece(self, samples, first - low, last - first)

    def _check(self, samples: Waveform) -> bool:
        if not np.isfinite(samples).all():
            self.error = ValueError("the waveform holds samples that are NaN or infinite")
        return self.error is None

    def _measure(self, first: int, samples: Waveform) -> None:
        whole = len(samples) // HOP_SAMPLES
        blocks = samples[: whole * HOP_SAMPLES].reshape(whole, HOP_SAMPLES)
        power = np.einsum("ij,ij->i", blocks, blocks) / HOP_SAMPLES
        rest = samples[whole * HOP_SAMPLES :]
        if len(rest):
            power = np.append(power, np.mean(rest * rest))
        self.level_db[first : first + len(power)] = 10 * np.log10(np.maximum(power, _POWER_FLOOR))


class Scoring:
    """Pieces that the device scores; nobody has to wait for it."""

    def __init__(self, pieces: Sequence[Piece], p_silence: Tensor, memory: Tensor, mark: Mark) -> None:
        self._pieces = pieces
        self._p_silence = p_silence
        self._memory = memory
        self._mark = mark

    @property
    def reached(self) -> bool:
        """Whether `take` has nothing to wait for."""
        return self._mark.reached

    def take(self) -> None:
        """Hand the scores to their scorers."""
        self._mark.wait()
        scores = self._p_silence.numpy()
        for number, piece in enumerate(self._pieces):
            piece.scorer.take(scores[number, : piece.frames], self._memory[:, number : number + 1])


@torch.inference_mode()
def start_scoring(scorers: Sequence[Scorer]) -> Scoring:
    """Begin to score the next piece of several waveforms in one batch; all share one network. Those done rest."""
    pieces = [piece for scorer in scorers if not scorer.done and (piece := scorer.piece())]
    if not pieces:
        return Scoring((), torch.empty(0, 0), torch.empty(0, 0), Mark())
    network = pieces[0].scorer.network
    with network.stream.use():
        features = network.features([piece.samples for piece in pieces])
        rows = [row[piece.skip :][: piece.frames] for row, piece in zip(features, pieces, strict=True)]
        memory = _memory(network, [piece.scorer.memory for piece in pieces])
        p_silence, memory = network(pad_sequence(rows, batch_first=True), memory)
        return Scoring(pieces, network.stream.to_host(p_silence), memory, network.stream.mark())


def _memory(network: FsmnNetwork, parts: Sequence[Tensor | None]) -> Tensor:
    """The past of each file; None is that of one that begins."""
    if all(part is None for part in parts):
        return network.initial_memory(len(parts))
    begin = network.initial_memory(1)
    return torch.cat([begin if part is None else part for part in parts], dim=1)


def step_scorers(scorers: Sequence[Scorer]) -> None:
    """Score the next piece of several waveforms, and wait for it."""
    start_scoring(scorers).take()
