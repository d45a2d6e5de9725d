"""The FSMN network: how silent every 10 ms of a waveform is.

Zhang et al., "Deep-FSMN for large vocabulary continuous speech recognition" (ICASSP 2018) describes the memory block;
here there are no residuals between blocks. The network is causal except for two stacked filter-bank frames of
look-ahead, so a file can be scored in pieces of any length with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from audio.fbank import Fbank, FbankOptions
from audio.lfr import stack_frames
from audio.shared import Waveform
from audio.streams import SideStream
from vad.weights import FsmnSizes, FsmnWeights, load_weights

_SILENCE = 0
"""The output class that stands for silence."""


class FsmnNetwork(nn.Module):
    """Scores stacked, normalised filter-bank frames; immutable once loaded, so threads and calls may share it."""

    def __init__(self, weights: FsmnWeights, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.sizes: FsmnSizes = weights.sizes
        self.device = torch.device(device)
        self.stream = SideStream(self.device)
        self.fbank = Fbank(FbankOptions(n_mels=weights.sizes.n_mels), self.device)
        self.tensors = nn.ParameterDict(
            {
                name.replace(".", "_"): nn.Parameter(tensor, requires_grad=False)
                for name, tensor in weights.tensors.items()
            }
        )
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("shift", weights.shift)
        self.register_buffer("scale", weights.scale)
        self.to(self.device).eval()

    @classmethod
    def load(cls, directory: Path | None = None, device: torch.device | str = "cpu") -> FsmnNetwork:
        """The published network from a directory, or from the installed weight package.

        Raises:
            VadWeightsError: the weights are missing or broken (`load_weights`).
        """
        return cls(load_weights(directory), device)

    @torch.inference_mode()
    def features(self, waveforms: Sequence[Waveform]) -> list[Tensor]:
        """Stacked log-mel frames of each waveform, (frames, input_dim) on the device; 25 ms at least, any length."""
        longest = max(len(waveform) for waveform in waveforms)
        padded = torch.empty(len(waveforms), longest, pin_memory=self.device.type == "cuda")
        for row, waveform in zip(padded.numpy(), waveforms, strict=True):
            row[: len(waveform)] = waveform
            row[len(waveform) :] = 0.0
        lengths = torch.tensor([len(waveform) for waveform in waveforms])
        banks, counts = self.fbank(padded.to(self.device, non_blocking=True), lengths)
        stacked, _ = stack_frames(banks, counts, m=self.sizes.lfr_m, n=1)
        return [rows[:count] for rows, count in zip(stacked, counts.tolist(), strict=True)]

    def initial_memory(self, batch: int) -> Tensor:
        """The past of a file that has none: zeros, (layers, batch, proj_dim, lorder - 1)."""
        sizes = self.sizes
        return torch.zeros(sizes.fsmn_layers, batch, sizes.proj_dim, sizes.lorder - 1, device=self.device)

    def forward(self, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Score a piece of each file.

        Args:
            features: (batch, frames, input_dim) float32, stacked log-mel frames before normalisation.
            memory: (layers, batch, proj_dim, lorder - 1), what the piece before left.

        Returns:
            P(silence), (batch, frames), and the memory for the next piece. Padding frames behind a file's own do not
            disturb its scores, but do enter its memory, so only a file's last piece may be padded.
        """
        hidden = (features + self.shift) * self.scale
        hidden = functional.relu(self._linear("in_linear2", self._linear("in_linear1", hidden)))
        past = []
        for layer in range(self.sizes.fsmn_layers):
            projected = functional.linear(hidden, self._tensor(f"fsmn_{layer}_linear_linear_weight"))
            taps = torch.cat([memory[layer], projected.transpose(1, 2)], dim=2)
            past.append(taps[:, :, taps.shape[2] - memory.shape[3] :])
            kernel = self._tensor(f"fsmn_{layer}_fsmn_block_conv_left_weight").squeeze(3)
            remembered = functional.conv1d(taps, kernel, groups=self.sizes.proj_dim).transpose(1, 2)
            hidden = functional.relu(self._linear(f"fsmn_{layer}_affine", projected + remembered))
        scores = self._linear("out_linear2", self._linear("out_linear1", hidden))
        return torch.softmax(scores, dim=2)[:, :, _SILENCE], torch.stack(past)

    def _tensor(self, name: str) -> Tensor:
        return cast(Tensor, self.tensors[name])

    def _linear(self, name: str, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self._tensor(f"{name}_linear_weight"), self._tensor(f"{name}_linear_bias"))
