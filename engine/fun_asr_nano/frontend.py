"""Segments of sound to the rows that the encoder reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from audio.fbank import FRAME_SAMPLES, HOP_SAMPLES, Fbank, FbankOptions, frame_count
from audio.lfr import stack_frames, stacked_count
from audio.shared import Waveform
from audio.span import SAMPLE_RATE
from engine.fun_asr_nano.config import FrontendConfig
from engine.fun_asr_nano.errors import UnsupportedConfig

_SHORTEST = 2  # samples


class Frontend:
    """Log-mel features of the published model, many segments at a time, on one device."""

    def __init__(self, config: FrontendConfig, *, device: str = "cpu") -> None:
        """Raises `UnsupportedConfig` for frames of another length or distance than the filter bank has."""
        timing = (config.frame_length_ms * SAMPLE_RATE // 1000, config.frame_shift_ms * SAMPLE_RATE // 1000)
        if timing != (FRAME_SAMPLES, HOP_SAMPLES):
            raise UnsupportedConfig(
                f"frontend_conf: frames of {timing} samples, only {(FRAME_SAMPLES, HOP_SAMPLES)} are supported"
            )
        self._config = config
        self._fbank = Fbank(FbankOptions(n_mels=config.mels), device)

    def rows(self, samples: int) -> int:
        """How many rows a segment of so many samples gives; one below 25 ms gives one, a single sample none."""
        frames = 1 if _SHORTEST <= samples < FRAME_SAMPLES else frame_count(samples)
        return stacked_count(frames, self._config.stride)

    def __call__(self, segments: Sequence[Waveform]) -> list[Tensor]:
        """(rows, width) float32 a segment on the device, each as if it were alone."""
        if not segments:
            return []
        lengths = [len(segment) for segment in segments]
        # Pinned memory lets a GPU fetch it while this thread goes on. The filter bank reads nothing behind a length.
        batch = torch.empty(len(segments), max(lengths), pin_memory=self._fbank.device.type == "cuda")
        for row, segment in zip(batch.numpy(), segments, strict=True):
            row[: len(segment)] = segment
        waveforms = batch.to(self._fbank.device, non_blocking=True)
        mels, frames = self._fbank(waveforms, torch.tensor(lengths), short_clips=True)
        stacked, _ = stack_frames(mels, frames, m=self._config.stack, n=self._config.stride)
        return [rows[: self.rows(length)] for rows, length in zip(stacked, lengths, strict=True)]
