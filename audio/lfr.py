"""Low frame rate: several filter-bank frames stacked into one row, every few frames."""

from __future__ import annotations

import torch
from torch import Tensor


def stacked_count(frames: int, n: int) -> int:
    """Rows that a sequence of frames gives: one for every `n`, the last one started counts."""
    return -(-frames // n)


def stack_frames(features: Tensor, counts: Tensor, *, m: int, n: int) -> tuple[Tensor, Tensor]:
    """Stack `m` neighbouring frames every `n` frames, in a padded batch; each row of the batch as if it were alone.

    Row i holds the frames n*i - (m-1)//2 ... n*i + m//2; those before the first or after the last are copies of it.
    With m=7, n=6 this is the input of the recogniser (60 ms a row), with m=5, n=1 that of voice activity detection.

    Args:
        features: (B, T, D), on any device.
        counts: (B,) integer frames of each row of the batch, on any device.

    Returns:
        (B, ceil(T / n), m * D), zero beyond ceil(count / n), and (B,) those counts, on the device of `counts`.
    """
    batch, frames, width = features.shape
    rows = stacked_count(frames, n)
    stacked_counts = (counts + n - 1).div(n, rounding_mode="floor")
    if rows == 0:
        return features.new_zeros(batch, 0, m * width), stacked_counts
    device = features.device
    first = n * torch.arange(rows, device=device)[:, None] - (m - 1) // 2
    index = (first + torch.arange(m, device=device)).expand(batch, rows, m)
    last = (counts.to(device, non_blocking=True) - 1).clamp(min=0)[:, None, None]
    index = torch.minimum(index.clamp(min=0), last)
    stacked = features[torch.arange(batch, device=device)[:, None, None], index].reshape(batch, rows, m * width)
    beyond = torch.arange(rows, device=device) >= stacked_counts.to(device, non_blocking=True)[:, None]
    return stacked.masked_fill_(beyond[:, :, None], 0.0), stacked_counts
