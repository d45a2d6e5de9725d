"""The transformer from encoder rows to embeddings of the language model; the CTC decoder is built the same.

Module names are those of the published state dict under `audio_adaptor.` and `ctc_decoder.`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.fun_asr_nano.config import AdaptorConfig
from engine.fun_asr_nano.encoder import FeedForward, attention

_EPS = 1e-12


class Adaptor(nn.Module):
    """Two linear layers, then pre-norm transformer blocks without positions and without a norm at the end."""

    def __init__(self, config: AdaptorConfig) -> None:
        super().__init__()
        self.linear1 = nn.Linear(config.input_dim, config.ffn_dim)
        self.linear2 = nn.Linear(config.ffn_dim, config.dim)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))

    def forward(self, x: Tensor, lengths: Tensor, rows: int | None = None) -> Tensor:
        """Transform a padded batch; no shape depends on data.

        Args:
            x: (batch, L, input_dim) encoder rows, finite also behind an item's length.
            lengths: (batch,) integers, at least 1.
            rows: how many leading rows are wanted. All L rows are attended to, but the last block computes only these.

        Returns:
            (batch, rows or L, dim); rows behind an item's length are meaningless.
        """
        mask = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        x = self.linear2(self.linear1(x).relu_())
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            x = block(x, mask, rows if index == last else None)
        return x


class _Block(nn.Module):
    def __init__(self, config: AdaptorConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.feed_forward = FeedForward(config.dim, config.dim // 4)
        self.norm1 = nn.LayerNorm(config.dim, eps=_EPS)
        self.norm2 = nn.LayerNorm(config.dim, eps=_EPS)

    def forward(self, x: Tensor, mask: Tensor, rows: int | None) -> Tensor:
        normed = self.norm1(x)
        x = x[:, :rows] + self.self_attn(normed[:, :rows], normed, mask)
        out: Tensor = x + self.feed_forward(self.norm2(x))
        return out


class _Attention(nn.Module):
    def __init__(self, config: AdaptorConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.linear_q = nn.Linear(config.dim, config.dim)
        self.linear_k = nn.Linear(config.dim, config.dim)
        self.linear_v = nn.Linear(config.dim, config.dim)
        self.linear_out = nn.Linear(config.dim, config.dim)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.linear_q(queries), self.linear_k(keys), self.linear_v(keys)
        out: Tensor = self.linear_out(attention(q, k, v, self.heads, mask))
        return out
