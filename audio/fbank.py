"""Kaldi's log-mel filter bank in torch: one implementation for voice activity, recogniser and speaker features.

Follows Kaldi's `compute-fbank-feats` (feature-window.cc, mel-computations.cc) with `snip_edges`, DC removal, no energy
column and no dither, so that the same sound always gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audio.span import SAMPLE_RATE

FRAME_SAMPLES = 400
"""25 ms: the samples that one frame sees."""
HOP_SAMPLES = 160
"""10 ms: from one frame to the next."""

_LOG_FLOOR = float(np.finfo(np.float32).eps)

# Windowed frames computed at a time: what fits a core's cache, or keeps a GPU busy.
_CPU_CHUNK_BYTES = 512 << 10
_GPU_CHUNK_BYTES = 64 << 20
_ITEM_BYTES = 4

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FbankOptions:
    """`scale` multiplies samples in [-1, 1]: 32768 for models trained on 16-bit integers, 1 for those on floats."""

    window: Literal["hamming", "povey"] = "hamming"
    scale: float = 32768.0
    n_mels: int = 80
    low_hz: float = 20.0
    high_hz: float = SAMPLE_RATE / 2
    preemphasis: float = 0.97


def frame_count(samples: int) -> int:
    """Whole frames in a waveform; the rest at its end is left out."""
    return 0 if samples < FRAME_SAMPLES else 1 + (samples - FRAME_SAMPLES) // HOP_SAMPLES


class Fbank:
    """A filter bank for one set of options on one device, in float32 like Kaldi itself.

    Bins 90 dB below the loudest of their frame are where float32 shows: about 2e-3 there, 1e-4 elsewhere.
    """

    def __init__(self, options: FbankOptions = FbankOptions(), device: torch.device | str = "cpu") -> None:
        self.options = options
        self.device = torch.device(device)

    def __call__(self, waveforms: Tensor, lengths: Tensor, *, short_clips: bool = False) -> tuple[Tensor, Tensor]:
        """Log-mel energies of a padded batch; each row as if it were alone.

        Args:
            waveforms: (B, N) float32 in [-1, 1] on the filter bank's device; what lies beyond a length is not read.
            lengths: (B,) integer samples of each row, on any device (on the CPU nothing has to wait for a GPU).
            short_clips: a clip of 2 to 399 samples gives one frame of all its samples, as the recogniser's reference
                does, rather than none. Needs the lengths on the CPU.

        Returns:
            (B, T, n_mels) float32, zero beyond each row's frames, and (B,) those frame counts, where `lengths` is.
        """
        rows, samples = waveforms.shape
        counts = torch.where(
            lengths < FRAME_SAMPLES, 0, 1 + (lengths - FRAME_SAMPLES).div(HOP_SAMPLES, rounding_mode="floor")
        )
        short = [(i, n) for i, n in enumerate(lengths.tolist()) if 2 <= n < FRAME_SAMPLES] if short_clips else []
        total = max(frame_count(samples), 1 if short else 0)
        features = waveforms.new_zeros(rows, total, self.options.n_mels)
        if rows and samples >= FRAME_SAMPLES:
            frames = waveforms.unfold(1, FRAME_SAMPLES, HOP_SAMPLES)
            for chunk in self._chunks(rows, frames.shape[1]):
                features[:, chunk] = self._log_mel(frames[:, chunk], self._filters)
            beyond = torch.arange(total, device=self.device) >= counts.to(self.device, non_blocking=True)[:, None]
            features.masked_fill_(beyond[:, :, None], 0.0)
        for row, length in short:
            filters = _Filters(self.options, length, self.device)
            features[row, 0] = self._log_mel(waveforms[row, :length], filters)
            counts[row] = 1
        return features, counts

    @cached_property
    def _filters(self) -> _Filters:
        return _Filters(self.options, FRAME_SAMPLES, self.device)

    def _chunks(self, rows: int, frames: int) -> Iterator[slice]:
        """Frames at a time, so that what is computed on the way stays small however long the waveform is."""
        room = _CPU_CHUNK_BYTES if self.device.type == "cpu" else _GPU_CHUNK_BYTES
        step = max(1, room // (rows * self._filters.fft_size * _ITEM_BYTES))
        for start in range(0, frames, step):
            yield slice(start, min(start + step, frames))

    def _log_mel(self, frames: Tensor, filters: _Filters) -> Tensor:
        """(..., samples) to (..., n_mels) float32."""
        x = frames * self.options.scale
        x -= x.mean(-1, keepdim=True)
        # Pre-emphasis; the first sample of a frame is its own predecessor.
        emphasised = x.clone()
        emphasised[..., 1:].sub_(x[..., :-1], alpha=self.options.preemphasis)
        emphasised[..., 0] *= 1.0 - self.options.preemphasis
        emphasised *= filters.window
        squares = torch.view_as_real(torch.fft.rfft(emphasised, filters.fft_size)).square_()
        power = squares[..., 0] + squares[..., 1]
        return torch.matmul(power, filters.mel).clamp_(min=_LOG_FLOOR).log_()


class _Filters:
    """Window (samples,) and mel triangles (fft_size / 2 + 1, n_mels) for frames of a given length."""

    def __init__(self, options: FbankOptions, samples: int, device: torch.device) -> None:
        self.fft_size = 1 << (samples - 1).bit_length()
        self.window = torch.from_numpy(_window(options.window, samples)).to(device, torch.float32)
        self.mel = torch.from_numpy(_mel_triangles(options, self.fft_size)).to(device, torch.float32)


def _window(name: str, samples: int) -> _Array:
    cosine = np.cos(2 * np.pi * np.arange(samples) / (samples - 1))
    if name == "hamming":
        return 0.54 - 0.46 * cosine
    # Povey: a Hann window to the power of 0.85.
    return (0.5 - 0.5 * cosine) ** 0.85


def _mel(hz: _Array) -> _Array:
    mel: _Array = 1127.0 * np.log(1.0 + hz / 700.0)
    return mel


def _mel_triangles(options: FbankOptions, fft_size: int) -> _Array:
    """Triangles that are linear in mel and overlap by half; the Nyquist bin gets no weight."""
    low, high = _mel(np.array([options.low_hz, options.high_hz]))
    step = (high - low) / (options.n_mels + 1)
    left = low + step * np.arange(options.n_mels)
    bins = _mel(np.arange(fft_size // 2 + 1, dtype=np.float64) * (SAMPLE_RATE / fft_size))[:, None]
    triangles: _Array = np.maximum(0.0, np.minimum((bins - left) / step, (left + 2 * step - bins) / step))
    triangles[-1] = 0.0
    return triangles
