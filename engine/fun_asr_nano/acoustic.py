"""The part of the model that hears: stacked log-mel rows to prompt embeddings and CTC rows, in padded batches."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from engine.fun_asr_nano.adaptor import Adaptor
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.config import NanoConfig
from engine.fun_asr_nano.ctc import CtcHead
from engine.fun_asr_nano.encoder import SanmEncoder
from engine.fun_asr_nano.graphs import BatchShape, EncoderGraphs


@dataclass(frozen=True, slots=True)
class Heard:
    """A segment after the encoder: (n, hidden) embeddings of the prompt, (rows, dim) CTC rows where there is a head."""

    embeddings: Tensor
    ctc: Tensor | None


class AcousticModel:
    """Encoder, adaptor and CTC decoder on one device."""

    def __init__(self, config: NanoConfig, encoder: SanmEncoder, adaptor: Adaptor, ctc: CtcHead | None) -> None:
        self._config = config
        self._encoder = encoder
        self._adaptor = adaptor
        self.ctc = ctc
        self._device = encoder.positions.device
        self._dtype = encoder.positions.dtype
        self._graphs: EncoderGraphs | None = None

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, *, max_rows: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> AcousticModel:
        """Build the modules of a checkpoint for segments of up to `max_rows` rows of 60 ms."""
        return cls(
            checkpoint.config,
            checkpoint.encoder(max_rows=max_rows, dtype=dtype, device=device),
            checkpoint.adaptor(dtype=dtype, device=device),
            checkpoint.ctc_head(dtype=dtype, device=device),
        )

    @property
    def max_rows(self) -> int:
        return len(self._encoder.positions)

    def record(self, shapes: Iterable[BatchShape]) -> None:
        """Record CUDA graphs for batches of these shapes; from then on `hear` uses them where they pay."""
        self._graphs = EncoderGraphs.record(
            functools.partial(self.forward, ctc=self.ctc is not None),
            shapes,
            width=self._config.frontend.width,
            tokens=self._config.audio_tokens,
            dtype=self._dtype,
            device=self._device,
        )

    @torch.inference_mode()
    def hear(self, features: Sequence[Tensor], *, ctc: bool = True) -> list[Heard]:
        """Encode segments together; each gets what it would get alone.

        Args:
            features: (rows, input_dim) a segment, at least one row each.
            ctc: whether word times will be wanted.

        Raises:
            ValueError: a segment has no rows, too many, or rows of a wrong width.
        """
        lengths = [self._checked(rows) for rows in features]
        if not lengths:
            return []
        tokens = [self._config.audio_tokens(length) for length in lengths]
        batch = pad_sequence(list(features), batch_first=True).to(self._device, self._dtype, non_blocking=True)
        sizes = torch.tensor(lengths).to(self._device, non_blocking=True)
        graph = None if self._graphs is None else self._graphs.find(len(lengths), max(lengths))
        if graph is not None:
            embeddings, hidden = graph(batch, sizes)
        else:
            embeddings, hidden = self.forward(batch, sizes, max(tokens), ctc=ctc and self.ctc is not None)
        return [
            Heard(embeddings[index, :count], None if hidden is None else hidden[index, :length])
            for index, (count, length) in enumerate(zip(tokens, lengths, strict=True))
        ]

    def forward(self, batch: Tensor, lengths: Tensor, tokens: int, *, ctc: bool) -> tuple[Tensor, Tensor | None]:
        """The device's part of `hear`: no host synchronisation, no shape that depends on data."""
        encoded = self._encoder(batch, lengths)
        embeddings: Tensor = self._adaptor(encoded, lengths, tokens)
        return embeddings, self.ctc(encoded, lengths) if ctc and self.ctc is not None else None

    def _checked(self, rows: Tensor) -> int:
        if rows.ndim != 2 or rows.shape[1] != self._config.frontend.width:
            raise ValueError(f"features are {list(rows.shape)}, expected [rows, {self._config.frontend.width}]")
        if not 1 <= len(rows) <= self.max_rows:
            raise ValueError(f"a segment of {len(rows)} rows, expected 1 to {self.max_rows}")
        return len(rows)
