"""Frame stacking: against the goldens, against its definition, and in batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from audio.fbank import Fbank
from audio.lfr import stack_frames, stacked_count

GOLDEN = Path(__file__).parents[1] / "parity" / "golden"


def by_definition(features: np.ndarray, m: int, n: int) -> np.ndarray:
    last = len(features) - 1
    rows = []
    for i in range(-(-len(features) // n)):
        frames = [min(max(n * i - (m - 1) // 2 + j, 0), last) for j in range(m)]
        rows.append(np.concatenate([features[frame] for frame in frames]))
    return np.stack(rows)


def stacked(features: np.ndarray, m: int, n: int) -> np.ndarray:
    rows, counts = stack_frames(torch.from_numpy(features)[None], torch.tensor([len(features)]), m=m, n=n)
    assert counts.tolist() == [rows.shape[1]]
    return rows[0].numpy()


@pytest.mark.parametrize("name", ["nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s"])
def test_equals_the_reference(name: str, recording: Callable[[str], np.ndarray]) -> None:
    golden = np.load(GOLDEN / "nano.npz")
    np.testing.assert_array_equal(stacked(golden[f"{name}/fbank"], 7, 6), golden[f"{name}/lfr"])
    waveform = torch.from_numpy(recording(name))[None]
    rows, counts = stack_frames(*Fbank()(waveform, torch.tensor([waveform.shape[1]])), m=7, n=6)
    difference = np.abs(rows[0].numpy() - golden[f"{name}/lfr"])
    assert counts.tolist() == [len(golden[f"{name}/lfr"])]
    assert difference.max() < 5e-3
    assert (difference < 1e-4).mean() > 0.999


@pytest.mark.parametrize(("m", "n"), [(7, 6), (5, 1), (1, 1), (4, 3)])
def test_equals_its_definition_at_every_length(m: int, n: int) -> None:
    features = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    for frames in range(1, 41):
        assert stacked_count(frames, n) == -(-frames // n)
        np.testing.assert_array_equal(stacked(features[:frames], m, n), by_definition(features[:frames], m, n))


@pytest.mark.parametrize(("m", "n"), [(7, 6), (5, 1)])
def test_a_padded_batch_equals_single_runs(m: int, n: int) -> None:
    features = torch.randn(5, 50, 4, generator=torch.Generator().manual_seed(0))
    lengths = [50, 7, 6, 1, 0]
    for row, length in zip(features, lengths, strict=True):
        row[length:] = torch.nan
    rows, counts = stack_frames(features, torch.tensor(lengths), m=m, n=n)
    assert rows.shape == (5, stacked_count(50, n), m * 4)
    assert counts.tolist() == [stacked_count(length, n) for length in lengths]
    for row, count, length, frames in zip(rows, counts, lengths, features, strict=True):
        if length:
            np.testing.assert_array_equal(row[:count].numpy(), by_definition(frames[:length].numpy(), m, n))
        assert (row[count:] == 0).all()


def test_no_frames() -> None:
    rows, counts = stack_frames(torch.zeros(2, 0, 80), torch.tensor([0, 0]), m=7, n=6)
    assert rows.shape == (2, 0, 560)
    assert counts.tolist() == [0, 0]
