"""The filter bank against the goldens, against Kaldi's own, and against itself in batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import kaldi_native_fbank
import numpy as np
import pytest
import torch

from audio.fbank import Fbank, FbankOptions, frame_count

GOLDEN = Path(__file__).parents[1] / "parity" / "golden"
INPUTS = ["nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s"]
RECORDINGS = ["jfk", "austen-0870", "austen-0880", "austen-0890", "austen-0920", "austen-0930", "goforward", "numbers",
              "something", "cards-005", "ivr-main"]  # fmt: skip
RECOGNISER = FbankOptions()
SPEAKER = FbankOptions(window="povey", scale=1.0)

Recording = Callable[[str], np.ndarray]


def features(waveform: np.ndarray, options: FbankOptions = RECOGNISER, **how: bool) -> np.ndarray:
    rows, counts = Fbank(options)(torch.from_numpy(waveform)[None], torch.tensor([len(waveform)]), **how)
    assert counts.tolist() == [rows.shape[1]]
    return rows[0].numpy()


def kaldi(waveform: np.ndarray, options: FbankOptions) -> np.ndarray:
    theirs = kaldi_native_fbank.FbankOptions()
    theirs.frame_opts.dither = 0
    theirs.frame_opts.window_type = options.window
    theirs.frame_opts.snip_edges = True
    theirs.mel_opts.num_bins = options.n_mels
    theirs.energy_floor = 0
    bank = kaldi_native_fbank.OnlineFbank(theirs)
    bank.accept_waveform(16_000, (waveform * options.scale).tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


@pytest.mark.parametrize("name", INPUTS)
def test_equals_the_reference(name: str, recording: Recording) -> None:
    golden = np.load(GOLDEN / "nano.npz")[f"{name}/fbank"]
    difference = np.abs(features(recording(name)) - golden)
    assert difference.max() < 5e-3
    assert (difference < 1e-4).mean() > 0.999


def test_equals_the_reference_of_speaker_features(recording: Recording) -> None:
    window = json.loads((GOLDEN / "speaker.json").read_text())["embedded_windows"][0]
    start, samples = window["first_sample"], window["samples"]
    ours = features(recording(window["recording"])[start : start + samples], SPEAKER)
    np.testing.assert_allclose(ours - ours.mean(0), np.load(GOLDEN / "speaker.npz")["features"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", RECORDINGS)
def test_equals_kaldi(name: str, recording: Recording) -> None:
    waveform = recording(name)
    np.testing.assert_allclose(features(waveform), kaldi(waveform, RECOGNISER), atol=2e-3, rtol=0)


def test_equals_kaldi_on_speaker_windows(recording: Recording) -> None:
    for window in json.loads((GOLDEN / "speaker.json").read_text())["embedded_windows"]:
        start, samples = window["first_sample"], window["samples"]
        waveform = recording(window["recording"])[start : start + samples]
        np.testing.assert_allclose(features(waveform, SPEAKER), kaldi(waveform, SPEAKER), atol=2e-3, rtol=0)


def test_a_padded_batch_equals_single_runs(recording: Recording) -> None:
    waveforms = [recording("jfk"), recording("nano-0.5s"), recording("numbers")[:399], recording("goforward")[:400]]
    lengths = torch.tensor([len(waveform) for waveform in waveforms])
    padded = torch.full((len(waveforms), int(lengths.max()) + 1_000), torch.nan)
    for row, waveform in zip(padded, waveforms, strict=True):
        row[: len(waveform)] = torch.from_numpy(waveform)
    batch, counts = Fbank()(padded, lengths)
    assert batch.dtype == torch.float32
    assert counts.tolist() == [frame_count(len(waveform)) for waveform in waveforms] == [1098, 48, 0, 1]
    for row, count, waveform in zip(batch, counts, waveforms, strict=True):
        np.testing.assert_allclose(row[:count].numpy(), features(waveform), atol=1e-5, rtol=0)
        assert (row[count:] == 0).all()


def test_frames_do_not_depend_on_what_follows(recording: Recording) -> None:
    waveform = recording("ivr-main")
    whole, part = features(waveform), features(waveform[: 160 * 700 + 240])
    np.testing.assert_allclose(part, whole[:700], atol=1e-5, rtol=0)


def test_silence_sits_at_the_floor() -> None:
    np.testing.assert_allclose(features(np.zeros(16_000, np.float32)), np.log(np.float32(2.0**-23)), rtol=1e-6)


@pytest.mark.parametrize("samples", [0, 1, 2, 160, 300, 399])
def test_less_than_a_frame_gives_none(samples: int, recording: Recording) -> None:
    assert features(recording("jfk")[16_000 : 16_000 + samples]).shape == (0, 80)


@pytest.mark.parametrize(("samples", "fft_size"), [(160, 256), (256, 256), (300, 512), (399, 512)])
def test_a_short_clip_is_one_frame_where_asked(samples: int, fft_size: int, recording: Recording) -> None:
    waveform = recording("jfk")[16_000 : 16_000 + samples]
    frame = features(waveform, short_clips=True)
    assert frame.shape == (1, 80)
    np.testing.assert_allclose(frame[0], short_frame(waveform, fft_size), atol=1e-3, rtol=0)


def short_frame(waveform: np.ndarray, fft_size: int) -> np.ndarray:
    """Section 2.2 of the reference, written out for one frame in float64."""
    x = waveform.astype(np.float64) * 32768
    x = x - x.mean()
    x = x - 0.97 * np.concatenate([x[:1], x[:-1]])
    x = x * (0.54 - 0.46 * np.cos(2 * np.pi * np.arange(len(x)) / (len(x) - 1)))
    power = np.abs(np.fft.rfft(x, fft_size)) ** 2
    edges = np.linspace(1127 * np.log(1 + 20 / 700), 1127 * np.log(1 + 8000 / 700), 82)
    energies = []
    for left, centre, right in zip(edges, edges[1:], edges[2:], strict=False):
        total = 0.0
        for k in range(fft_size // 2):
            mel = 1127 * np.log(1 + k * 16_000 / fft_size / 700)
            if left < mel < right:
                total += power[k] * (
                    (mel - left) / (centre - left) if mel <= centre else (right - mel) / (right - centre)
                )
        energies.append(total)
    return np.log(np.maximum(energies, 2.0**-23))


@pytest.mark.parametrize("samples", [0, 1])
def test_no_frame_from_less_than_two_samples(samples: int) -> None:
    assert features(np.ones(samples, np.float32), short_clips=True).shape == (0, 80)


def test_two_samples_are_a_frame_of_finite_numbers() -> None:
    frame = features(np.array([0.5, -0.5], np.float32), short_clips=True)
    assert frame.shape == (1, 80)
    assert np.isfinite(frame).all()


def test_short_clips_among_long_ones(recording: Recording) -> None:
    waveform = torch.from_numpy(recording("jfk")[16_000:17_000].copy()).repeat(3, 1)
    batch, counts = Fbank()(waveform, torch.tensor([1_000, 300, 1]), short_clips=True)
    assert counts.tolist() == [4, 1, 0]
    np.testing.assert_allclose(batch[0].numpy(), features(waveform[0].numpy()), atol=1e-5)
    np.testing.assert_allclose(batch[1, :1].numpy(), features(waveform[1, :300].numpy(), short_clips=True), atol=1e-5)
    assert (batch[1, 1:] == 0).all()
    assert (batch[2] == 0).all()


def test_an_empty_batch() -> None:
    batch, counts = Fbank()(torch.zeros(0, 1_000), torch.zeros(0, dtype=torch.long))
    assert batch.shape == (0, 4, 80)
    assert counts.shape == (0,)


def test_other_mel_counts() -> None:
    waveform = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) / 10
    options = FbankOptions(n_mels=40)
    np.testing.assert_allclose(features(waveform, options), kaldi(waveform, options), atol=2e-3, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same(recording: Recording) -> None:
    waveform = torch.from_numpy(recording("nano-29.7s"))[None]
    lengths = torch.tensor([waveform.shape[1]])
    ours, _ = Fbank(device="cuda")(waveform.cuda(), lengths)
    np.testing.assert_allclose(ours[0].cpu().numpy(), features(waveform[0].numpy()), atol=5e-3, rtol=0)
