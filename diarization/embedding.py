"""From samples to speaker embeddings: one door for every network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from audio.fbank import Fbank, FbankOptions
from audio.shared import Waveform
from diarization import campplus, eres2netv2
from diarization.ge2e import Ge2e
from diarization.weights import MissingSpeakerWeights, load_into
from diarization.windows import WINDOW_SAMPLES

Embeddings = NDArray[np.float32]
"""(windows, dimensions), rows of unit length."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a network's cosines mean.

    Attributes:
        within: cosine of two windows of one voice, typically.
        link: windows are put together at first while their mean cosine is above this share of `within`.
        merge: two groups are one voice from this similarity on (1: as alike as windows of one voice are).
        switch: what a change of speaker costs between two windows that follow each other, as a cosine.
        known: a group has the name of the nearest reference from this cosine of their means on.
    """

    within: float
    link: float
    merge: float
    switch: float
    known: float


class SpeakerEmbedder(Protocol):
    """Any number of threads may share one."""

    @property
    def name(self) -> str: ...

    @property
    def calibration(self) -> Calibration: ...

    @property
    def device(self) -> torch.device: ...

    def __call__(self, windows: NDArray[np.float32]) -> Embeddings:
        """Embed (batch, samples) windows of one length, at least 25 ms."""

    def embed(self, pieces: Sequence[Waveform], firsts: Sequence[int]) -> Embeddings:
        """Embed windows that overlap, so that their samples go to the device once: those of `windows.gather`."""


# Tuned on the tuning set of bench/conversations.py (docs/decisions/2026-11-30-speaker-clustering.md).
GE2E_CALIBRATION = Calibration(within=0.75, link=0.9, merge=0.92, switch=0.05, known=0.72)
# The published weights could not be had where this was written: `merge` is the published pipeline's own threshold, the
# cosines are those that the papers' networks show on windows of this length.
FBANK_CALIBRATION = Calibration(within=0.65, link=0.8, merge=0.78, switch=0.08, known=0.45)


class NetworkEmbedder:
    """A network on a device behind a function that makes its input from (batch, samples) float32."""

    def __init__(
        self, name: str, network: nn.Module, calibration: Calibration, device: torch.device | str = "cpu"
    ) -> None:
        """`network` takes (batch, samples) and returns (batch, dimensions); it is moved to the device."""
        self.name = name
        self.calibration = calibration
        self.device = torch.device(device)
        self._network = network.to(self.device).eval()
        cuda: Any = torch.cuda
        # A stream of its own: other work on the GPU does not queue behind a batch, nor this behind that.
        self._stream = cuda.Stream(self.device) if self._on_gpu else None

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @torch.inference_mode()
    def __call__(self, windows: NDArray[np.float32]) -> Embeddings:
        with self._alone():
            return self._embeddings(torch.from_numpy(windows).to(self.device))

    @torch.inference_mode()
    def embed(self, pieces: Sequence[Waveform], firsts: Sequence[int]) -> Embeddings:
        with self._alone():
            return self._embeddings(self._windows(pieces, firsts))

    def _windows(self, pieces: Sequence[Waveform], firsts: Sequence[int]) -> Tensor:
        """(windows, WINDOW_SAMPLES) on the device."""
        # Pinned memory lets a GPU fetch the samples while this thread starts the network.
        host = torch.empty(sum(len(piece) for piece in pieces), pin_memory=self._on_gpu)
        np.concatenate(pieces, out=host.numpy())
        samples = host.to(self.device, non_blocking=True)
        at = torch.tensor(firsts).to(self.device, non_blocking=True)
        return samples.unfold(0, WINDOW_SAMPLES, 1)[at]

    def _alone(self) -> Any:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _embeddings(self, windows: Tensor) -> Embeddings:
        """The only place that waits for the device."""
        embeddings: Embeddings = F.normalize(self._network(windows).float(), dim=1).cpu().numpy()
        return embeddings


class FromFbank(nn.Module):
    """Kaldi features in front of a network: 80 log-mels, Povey window, samples as floats, mean over time removed."""

    def __init__(
        self, network: nn.Module, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        """`dtype` is that of convolutions; normalisation and statistics over time stay float32."""
        super().__init__()
        for module in network.modules():
            if isinstance(module, nn.Conv1d | nn.Conv2d):
                module.to(dtype)
        self.network = network
        self._dtype = dtype
        self._fbank = Fbank(FbankOptions(window="povey", scale=1.0), device)

    def forward(self, samples: Tensor) -> Tensor:
        """(B, N) samples of equal length to (B, dimensions)."""
        out: Tensor = self.network(self.features(samples))
        return out

    def features(self, samples: Tensor) -> Tensor:
        """(B, N) samples to (B, frames, 80)."""
        features, _ = self._fbank(samples, torch.full((samples.shape[0],), samples.shape[1]))
        return (features - features.mean(1, keepdim=True)).to(self._dtype)


def load_embedder(directory: Path | None = None, device: torch.device | str = "cpu") -> SpeakerEmbedder:
    """The embedder of a published model directory (CAM++ or ERes2NetV2), or GE2E from the installed package.

    Raises:
        SpeakerWeightsError: the weights are missing or broken; the message names the file or the tensor.
    """
    if directory is None:
        return NetworkEmbedder("ge2e", Ge2e.load(), GE2E_CALIBRATION, device)
    networks: dict[str, tuple[str, type[nn.Module]]] = {
        campplus.CHECKPOINT: ("campplus", campplus.CampPlus),
        eres2netv2.CHECKPOINT: ("eres2netv2", eres2netv2.ERes2NetV2),
    }
    for file, (name, kind) in networks.items():
        if (directory / file).exists():
            network = kind()
            load_into(network, directory / file)
            dtype = torch.float32 if torch.device(device).type == "cpu" else torch.float16
            return NetworkEmbedder(name, FromFbank(network, device, dtype), FBANK_CALIBRATION, device)
    raise MissingSpeakerWeights(f"{directory}: holds none of {', '.join(networks)}")
