"""The CTC head: where in the sound each piece of a text may lie.

Module names are those of the published state dict under `ctc_decoder.` and `ctc.`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from engine.fun_asr_nano.adaptor import Adaptor
from engine.fun_asr_nano.config import CtcConfig

_CHUNK_ELEMENTS = 1 << 26  # logits held at once: 256 MB in float32


class CtcHead(nn.Module):
    """Encoder rows to log-probabilities of the labels of a text that is known already."""

    def __init__(self, config: CtcConfig) -> None:
        super().__init__()
        self.ctc_decoder = Adaptor(config.decoder)
        self.ctc = _Output(config)
        self.vocabulary = config.vocabulary
        self.blank = config.blank

    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """Hidden rows of a padded batch: (batch, rows, dim) from (batch, rows, encoder dim)."""
        hidden: Tensor = self.ctc_decoder(encoded, lengths)
        return hidden

    def label_log_probs(self, hidden: Tensor, owners: Tensor, labels: Tensor) -> Tensor:
        """Log-probabilities of a few labels of every row, without ever holding all rows of the whole vocabulary.

        Args:
            hidden: (rows, dim), the rows of any number of segments one after the other.
            owners: (rows,) int64, the segment of each row.
            labels: (segments, K) int64, the labels wanted of each segment.

        Returns:
            (rows, K) float32.
        """
        size = max(1, _CHUNK_ELEMENTS // self.vocabulary)
        chunks = zip(torch.split(hidden, size), torch.split(owners, size), strict=True)
        return torch.cat([self._chosen(rows, labels.index_select(0, owner)) for rows, owner in chunks])

    def label_logits(self, hidden: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Logits of a few labels of every row, less the highest of them: log-probabilities up to a constant a row.

        Close to them where the head is sure, so that sums over many rows stay exact; and as cheap as they are few.

        Args:
            hidden: (rows, dim) a segment.
            labels: (segments, K) int64, the labels wanted of each segment.

        Returns:
            (all rows, K) float32.
        """
        output = self.ctc.ctc_lo
        weight, bias = output.weight[labels].float(), output.bias[labels].float()
        padded = pad_sequence(list(hidden), batch_first=True).float()
        logits = torch.baddbmm(bias[:, None], padded, weight.transpose(1, 2))
        logits -= logits.amax(dim=-1, keepdim=True)
        return torch.cat([rows[: len(own)] for rows, own in zip(logits, hidden, strict=True)])

    def log_probs(self, hidden: Tensor) -> Tensor:
        """All columns, (rows, vocabulary) float32: for short inputs and tests."""
        return torch.log_softmax(self.ctc.ctc_lo(hidden).float(), dim=-1)

    def _chosen(self, rows: Tensor, wanted: Tensor) -> Tensor:
        logits = self.ctc.ctc_lo(rows).float()
        out: Tensor = logits.gather(1, wanted) - logits.logsumexp(dim=1, keepdim=True)
        return out


class _Output(nn.Module):
    def __init__(self, config: CtcConfig) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(config.decoder.dim, config.vocabulary)
