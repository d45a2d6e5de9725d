"""The SAN-M encoder of SenseVoice: self-attention with a convolutional memory on the values.

Formulas: "SAN-M: Memory Equipped Self-Attention for End-to-End Speech Recognition" (Gao et al., 2020), in the variant
that the published weights were trained with. Module names are those of the published state dict under `audio_encoder.`.
"""

from __future__ import annotations

import math
from itertools import chain

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from engine.fun_asr_nano.config import EncoderConfig

_EPS = 1e-5


class SanmEncoder(nn.Module):
    """Stacked log-mel rows to encoder rows, 60 ms each.

    Shapes do not depend on data and nothing waits for the device, so a call can be captured in a CUDA graph.
    """

    positions: Tensor

    def __init__(self, config: EncoderConfig, *, max_rows: int) -> None:
        """`max_rows` is the longest input; it sizes the table of positions."""
        super().__init__()
        dim = config.dim
        self.encoders0 = nn.ModuleList([_Layer(config, config.input_dim)])
        self.encoders = nn.ModuleList(_Layer(config, dim) for _ in range(config.blocks - 1))
        self.tp_encoders = nn.ModuleList(_Layer(config, dim) for _ in range(config.tp_blocks))
        self.after_norm = nn.LayerNorm(dim, eps=_EPS)
        self.tp_norm = nn.LayerNorm(dim, eps=_EPS)
        self.scale = math.sqrt(dim)
        self.register_buffer("positions", _positions(max_rows, config.input_dim), persistent=False)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Encode a padded batch.

        Args:
            features: (batch, rows, input_dim); what lies behind an item's length does not matter, if finite.
            lengths: (batch,) integers, at least 1.

        Returns:
            (batch, rows, dim) of the same dtype; rows behind an item's length are meaningless.
        """
        rows = features.shape[1]
        mask = torch.arange(rows, device=features.device)[None] < lengths[:, None]
        x = features * self.scale + self.positions[:rows]
        for layer in chain(self.encoders0, self.encoders):
            x = layer(x, mask)
        x = self.after_norm(x)
        for layer in self.tp_encoders:
            x = layer(x, mask)
        out: Tensor = self.tp_norm(x)
        return out


class _Layer(nn.Module):
    """Pre-norm attention and feed-forward; the first layer changes the width and has no residual around attention."""

    def __init__(self, config: EncoderConfig, input_dim: int) -> None:
        super().__init__()
        self.self_attn = _SanmAttention(config, input_dim)
        self.feed_forward = FeedForward(config.dim, config.ffn_dim)
        self.norm1 = nn.LayerNorm(input_dim, eps=_EPS)
        self.norm2 = nn.LayerNorm(config.dim, eps=_EPS)
        self.residual = input_dim == config.dim

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        heard = self.self_attn(self.norm1(x), mask)
        x = x + heard if self.residual else heard
        out: Tensor = x + self.feed_forward(self.norm2(x))
        return out


class _SanmAttention(nn.Module):
    def __init__(self, config: EncoderConfig, input_dim: int) -> None:
        super().__init__()
        dim = config.dim
        self.heads = config.heads
        self.linear_q_k_v = nn.Linear(input_dim, 3 * dim)
        self.linear_out = nn.Linear(dim, dim)
        self.fsmn_block = nn.Conv1d(dim, dim, config.kernel, groups=dim, bias=False)
        left = (config.kernel - 1) // 2 + config.shift
        self.padding = (left, config.kernel - 1 - left)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.linear_q_k_v(x).chunk(3, dim=-1)
        attended = attention(q, k, v, self.heads, mask)
        out: Tensor = self.linear_out(attended) + self._memory(v, mask[..., None])
        return out

    def _memory(self, v: Tensor, mask: Tensor) -> Tensor:
        """A depthwise convolution over the values of the real rows, and the values themselves."""
        v = v * mask
        shifted = self.fsmn_block(F.pad(v.transpose(1, 2), self.padding))
        out: Tensor = (shifted.transpose(1, 2) + v) * mask
        return out


class FeedForward(nn.Module):
    """Linear, ReLU, linear."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, hidden)
        self.w_2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.w_1(x).relu_())
        return out


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor) -> Tensor:
    """Scaled dot-product attention of (batch, rows, dim) projections, over keys where `mask` (batch, keys) is true."""
    q, k, v = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (q, k, v))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
    return attended.transpose(1, 2).flatten(2)


def _positions(rows: int, depth: int) -> Tensor:
    """Sinusoids for positions 1 to `rows`: all sines, then all cosines, (rows, depth) float32.

    They are computed, not loaded: on the CPU even while a module is laid out on the meta device.
    """
    half = depth // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32, device="cpu") * (-math.log(10000.0) / (half - 1)))
    angles = torch.arange(1, rows + 1, dtype=torch.float32, device="cpu")[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
