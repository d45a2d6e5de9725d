from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vad.network import FsmnNetwork
from vad.scoring import Scorer, step_scorers

Waveform = NDArray[np.float32]
Named = Callable[[str], Waveform]


def test_scores_equal_the_reference(
    golden_arrays: Mapping[str, NDArray[Any]], waveform: Named, score: Callable[[Waveform], Scorer]
) -> None:
    names = [key.removesuffix("/p_silence") for key in golden_arrays if key.endswith("/p_silence")]
    assert len(names) == 14
    for name in names:
        scores = score(waveform(name)).p_silence
        np.testing.assert_allclose(scores, golden_arrays[f"{name}/p_silence"], rtol=0, atol=1e-4, err_msg=name)


def test_features_equal_the_reference(
    golden_arrays: Mapping[str, NDArray[Any]], waveform: Named, network: FsmnNetwork
) -> None:
    rows = network.features([waveform("jfk")])[0]
    normalised = ((rows + network.shift) * network.scale).numpy()
    numbers = golden_arrays["jfk/row_numbers"]
    np.testing.assert_allclose(normalised[numbers], golden_arrays["jfk/feature_rows"], rtol=0, atol=5e-3)


@pytest.mark.parametrize("piece_seconds", [0.01, 0.05, 0.37, 3.0])
def test_pieces_change_nothing(
    piece_seconds: float, network: FsmnNetwork, waveform: Named, score: Callable[[Waveform], Scorer]
) -> None:
    samples = waveform("numbers")[: 16000 * 2 + 77]
    whole = score(samples)
    scorer = Scorer(network, samples, piece_seconds)
    steps = 0
    while not scorer.done:
        scorer.step()
        steps += 1
    assert steps == -(-len(whole.p_silence) // round(piece_seconds * 100))
    np.testing.assert_allclose(scorer.p_silence, whole.p_silence, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scorer.level_db, whole.level_db)


def test_files_of_a_batch_do_not_know_each_other(
    network: FsmnNetwork, waveform: Named, score: Callable[[Waveform], Scorer]
) -> None:
    names = ["jfk", "nano-0.5s", "goforward", "frame-0.025s", "click-0.01s", "noise-10s"]
    batch = [Scorer(network, waveform(name), 1.3) for name in names]
    while not all(scorer.done for scorer in batch):
        step_scorers(batch)
    for name, scorer in zip(names, batch, strict=True):
        np.testing.assert_allclose(scorer.p_silence, score(waveform(name)).p_silence, rtol=0, atol=1e-5, err_msg=name)


def test_levels(network: FsmnNetwork, score: Callable[[Waveform], Scorer]) -> None:
    samples = np.repeat(np.array([0.1, 0.0, 1.0, -0.5], np.float32), 160)
    level = score(np.concatenate([samples, samples[-40:]])).level_db
    np.testing.assert_allclose(level, [-20, -100, 0, 20 * np.log10(0.5), 20 * np.log10(0.5)], atol=1e-4)
    assert score(samples[:100]).level_db.tolist() == pytest.approx([-20])


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 401, 559, 560, 561, 800])
def test_short_waveforms(samples: int, score: Callable[[Waveform], Scorer]) -> None:
    scorer = score(np.zeros(samples, np.float32))
    assert scorer.done
    assert len(scorer.p_silence) == (0 if samples < 400 else 1 + (samples - 400) // 160)
    assert len(scorer.level_db) == -(-samples // 160)
    assert (scorer.p_silence > 0.25).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("length", [100, 20_000])
def test_samples_that_are_not_numbers(bad: float, length: int, network: FsmnNetwork, waveform: Named) -> None:
    broken = np.zeros(length, np.float32)
    broken[length - 50] = bad
    scorer, healthy = Scorer(network, broken, 0.5), Scorer(network, waveform("jfk"), 0.5)
    while not (scorer.done and healthy.done):
        step_scorers([scorer, healthy])
    assert isinstance(scorer.error, ValueError)
    assert healthy.error is None


@pytest.mark.parametrize("wrong", [np.zeros(800, np.int16), np.zeros(800), np.zeros((2, 800), np.float32)])
def test_wrong_arrays(wrong: Any, network: FsmnNetwork) -> None:
    with pytest.raises(ValueError, match="1-D float32"):
        Scorer(network, wrong)


def test_piece_must_hold_a_frame(network: FsmnNetwork) -> None:
    with pytest.raises(ValueError, match=r"piece_seconds is 0\.001"):
        Scorer(network, np.zeros(800, np.float32), 0.001)
