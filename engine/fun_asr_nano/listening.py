"""Segments through the filter bank and the encoder, beside whatever else the device does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from audio.shared import Waveform
from engine.fun_asr_nano.acoustic import AcousticModel, Heard
from engine.fun_asr_nano.frontend import Frontend
from engine.fun_asr_nano.streams import Mark, SideStream


@dataclass(frozen=True, slots=True)
class Listening:
    """A batch on its way through the encoder. `heard` may be read once `mark` is reached; its embeddings are on the
    CPU, its CTC rows stay on the device."""

    heard: Sequence[Heard]
    mark: Mark


class Listener:
    """Starts encoder batches; on a GPU nothing waits for them."""

    def __init__(self, frontend: Frontend, acoustic: AcousticModel, *, dtype: torch.dtype, device: str) -> None:
        """`dtype` is that of the language model's embeddings."""
        self._frontend = frontend
        self._acoustic = acoustic
        self._dtype = dtype
        self._stream = SideStream(device)

    def rows(self, samples: int) -> int:
        """Encoder rows of a clip."""
        return self._frontend.rows(samples)

    @property
    def max_rows(self) -> int:
        return self._acoustic.max_rows

    @torch.inference_mode()
    def start(self, clips: Sequence[Waveform], *, ctc: bool) -> Listening:
        """Encode clips of 1 to `max_rows` rows each; `ctc` says whether word times will be wanted."""
        with self._stream.use():
            heard = self._acoustic.hear(self._frontend(clips), ctc=ctc)
            # One copy for the whole batch: vLLM takes embeddings from the CPU.
            embeddings = self._stream.to_host(torch.cat([item.embeddings for item in heard]).to(self._dtype))
            mark = self._stream.mark()
        parts = torch.split(embeddings, [len(item.embeddings) for item in heard])
        return Listening([Heard(part, item.ctc) for part, item in zip(parts, heard, strict=True)], mark)
