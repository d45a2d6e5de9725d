"""GE2E: three LSTM layers over 40 mels, trained to tell speakers apart.

Wan et al., "Generalized End-to-End Loss for Speaker Verification" (ICASSP 2018), with the weights that the package
`Resemblyzer` carries (Apache-2.0). Features are the ones of that package: power mels (not their logarithm) of 25 ms
Hann windows every 10 ms, triangles on Slaney's scale, each of unit area (Slaney, Auditory Toolbox, 1998).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from audio.span import SAMPLE_RATE
from diarization.weights import load_into, packaged_file

PACKAGE = "Resemblyzer"
"""The distribution on the package index that carries the weights."""

_ASSET = "resemblyzer/pretrained.pt"
# The loss's own scale and offset: not needed to embed.
_TRAINING_ONLY = frozenset({"similarity_weight", "similarity_bias"})

_N_MELS = 40
_HIDDEN = 256
_EMBEDDING_DIM = 256
_LAYERS = 3
_FRAME_SAMPLES = 400
_HOP_SAMPLES = 160
_LEVEL_DBFS = -25.0
"""Every window is brought to this level: power mels carry the loudness into the network, where it would tell apart what
is one voice."""
_MAX_GAIN_DB = 60.0


class Ge2e(nn.Module):
    """(B, N) samples to (B, 256) embeddings of unit length; all values are positive or zero."""

    mel: Tensor
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_N_MELS, _HIDDEN, _LAYERS, batch_first=True)
        self.linear = nn.Linear(_HIDDEN, _EMBEDDING_DIM)
        self.register_buffer("mel", torch.from_numpy(_mel_triangles()), persistent=False)
        self.register_buffer("window", torch.hann_window(_FRAME_SAMPLES), persistent=False)

    @classmethod
    def load(cls, path: Path | None = None) -> Ge2e:
        """The network with the weights of a file, or of the installed package.

        Raises:
            SpeakerWeightsError: the weights are missing or broken.
        """
        network = cls()
        load_into(network, path or packaged_file(PACKAGE, _ASSET), ignored=_TRAINING_ONLY)
        return network

    def forward(self, samples: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.features(samples))
        return F.normalize(F.relu(self.linear(hidden[-1])), dim=1)

    def features(self, samples: Tensor) -> Tensor:
        """(B, N) samples to (B, 1 + N // 160, 40) power mels; frames are centred, zeros lie around the samples."""
        spectrum = torch.stft(
            _raised(samples),
            n_fft=_FRAME_SAMPLES,
            hop_length=_HOP_SAMPLES,
            window=self.window,
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        power = torch.view_as_real(spectrum).square().sum(-1)
        return power.transpose(1, 2) @ self.mel


def _raised(samples: Tensor) -> Tensor:
    level = 10 * torch.log10(samples.square().mean(1, keepdim=True).clamp_min(1e-10))
    gain = (_LEVEL_DBFS - level).clamp(max=_MAX_GAIN_DB)
    return samples * 10 ** (gain / 20)


def _mel_triangles() -> NDArray[np.float32]:
    """(201, 40): linear below 1 kHz (15 mels), then 27 mels to each factor of 6.4."""
    edges = _hz(np.linspace(0.0, _slaney_mel(SAMPLE_RATE / 2), _N_MELS + 2))
    bins = np.arange(_FRAME_SAMPLES // 2 + 1)[:, None] * (SAMPLE_RATE / _FRAME_SAMPLES)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.maximum(0.0, np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)))
    scaled: NDArray[np.float32] = (triangles * (2.0 / (high - low))).astype(np.float32)
    return scaled


def _slaney_mel(hz: float) -> float:
    return 15.0 + 27.0 * float(np.log(hz / 1000.0) / np.log(6.4)) if hz >= 1000.0 else hz * 3.0 / 200.0


def _hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    hz: NDArray[np.float64] = np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * 6.4 ** ((mel - 15.0) / 27.0))
    return hz
