from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from audio.fbank import Fbank, FbankOptions
from audio.span import Span
from diarization import weights
from diarization.embedding import FromFbank, NetworkEmbedder, SpeakerEmbedder, load_embedder
from diarization.ge2e import Ge2e
from diarization.weights import BrokenSpeakerWeights, MissingSpeakerWeights
from diarization.windows import cut, gather, windows_of
from tests import compositions

TOLERANCES = {"campplus": 1e-4, "eres2netv2": 5e-2}
"""The README of the goldens; ERes2NetV2's embeddings have a standard deviation of 23."""


@pytest.fixture(scope="session")
def windows(golden: Mapping[str, Any]) -> NDArray[np.float32]:
    """(6, 24000) the windows whose embeddings are known."""
    return np.stack(
        [
            compositions.waveform(window["recording"])[window["first_sample"] :][: window["samples"]]
            for window in golden["embedded_windows"]
        ]
    )


def test_features_equal_the_golden(
    windows: NDArray[np.float32], golden_arrays: Mapping[str, NDArray[np.float32]]
) -> None:
    fbank = Fbank(FbankOptions(window="povey", scale=1.0))
    features, _ = fbank(torch.from_numpy(windows[:1]), torch.tensor([windows.shape[1]]))
    centred = (features - features.mean(1, keepdim=True))[0].numpy()
    np.testing.assert_allclose(centred, golden_arrays["features"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["campplus", "eres2netv2"])
def test_embeddings_equal_the_goldens(
    name: str,
    checkpoints: Path,
    windows: NDArray[np.float32],
    golden_arrays: Mapping[str, NDArray[np.float32]],
) -> None:
    embedder = load_embedder(checkpoints / name)
    expected = golden_arrays[f"{name}/embeddings"]
    with torch.inference_mode():
        raw = embedder._network(torch.from_numpy(windows)).numpy()  # type: ignore[attr-defined]
    np.testing.assert_allclose(raw, expected, atol=TOLERANCES[name], rtol=0)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder(windows), unit, atol=TOLERANCES[name], rtol=0)
    alone = np.concatenate([embedder(window[None]) for window in windows])
    np.testing.assert_allclose(embedder(windows), alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["campplus", "eres2netv2"])
def test_half_precision_hears_the_same(name: str, checkpoints: Path, windows: NDArray[np.float32]) -> None:
    """What a GPU computes: no cosine of two windows moves by a thousandth, where thresholds have two digits."""
    whole = load_embedder(checkpoints / name)
    network = load_embedder(checkpoints / name)._network.network  # type: ignore[attr-defined]
    half = NetworkEmbedder(name, FromFbank(network, dtype=torch.float16), whole.calibration)
    exact, found = whole(windows[:2]), half(windows[:2])
    np.testing.assert_allclose(found @ exact.T, exact @ exact.T, atol=1e-3, rtol=0)


def test_overlapping_windows_need_not_be_cut(embedder: SpeakerEmbedder) -> None:
    waveform = compositions.waveform("jfk")
    spans = windows_of([Span(0.0, 1.0), Span(1.5, 5.0), Span(6.0, 10.0)], len(waveform))
    np.testing.assert_array_equal(embedder.embed(*gather(waveform, spans)), embedder(cut(waveform, spans)))


def test_ge2e_comes_from_the_package_without_importing_it(embedder: SpeakerEmbedder) -> None:
    assert embedder.name == "ge2e"
    assert "resemblyzer" not in sys.modules


def test_ge2e_features_of_a_tone() -> None:
    """A sine of RMS 0.1 at 1 kHz has its power around the 15th mel (1 kHz is mel 15 of 45.2, in 41 steps)."""
    time = np.arange(16_000) / 16_000
    tone = torch.from_numpy((0.1 * np.sqrt(2) * np.sin(2 * np.pi * 1000 * time)).astype(np.float32))
    features = Ge2e().features(tone[None])[0]
    assert features.shape == (101, 40)
    assert int(features[50].argmax()) == round(15 / (15 + 27 * np.log(8) / np.log(6.4)) * 41) - 1


def test_ge2e_hears_no_loudness_below_its_level(embedder: SpeakerEmbedder) -> None:
    window = compositions.waveform("jfk")[16_000:40_000][None]
    np.testing.assert_allclose(embedder(window * np.float32(0.1)), embedder(window * np.float32(0.02)), atol=1e-5)


def test_ge2e_of_digital_silence_is_finite(embedder: SpeakerEmbedder) -> None:
    assert np.isfinite(embedder(np.zeros((1, 24_000), np.float32))).all()


def test_ge2e_tells_voices_apart(embedder: SpeakerEmbedder) -> None:
    def mean(name: str) -> NDArray[np.float32]:
        waveform = compositions.waveform(name)
        starts = range(0, len(waveform) - 24_000, 12_000)
        rows = embedder(np.stack([waveform[start : start + 24_000] for start in starts])).mean(0)
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows)
        return unit

    austen, austen_again, kennedy, allison = (mean(name) for name in ("austen-0870", "austen-0920", "jfk", "ivr-main"))
    assert austen @ austen_again > 0.9
    assert max(austen @ kennedy, austen @ allison, kennedy @ allison) < 0.8


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise weights.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(weights.importlib.metadata, "distribution", absent)
    with pytest.raises(MissingSpeakerWeights, match="pip install --no-deps Resemblyzer"):
        load_embedder()


def test_directory_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MissingSpeakerWeights, match=r"campplus_cn_common\.bin, pretrained_eres2netv2\.ckpt"):
        load_embedder(tmp_path)


@pytest.fixture
def state(checkpoints: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(checkpoints / "campplus" / "campplus_cn_common.bin", weights_only=True)
    return found


@pytest.mark.parametrize("wrapping", [None, "state_dict", "model"])
def test_wrapped_checkpoint(state: dict[str, torch.Tensor], wrapping: str | None, tmp_path: Path) -> None:
    named = {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save({wrapping: named, "epoch": 3} if wrapping else named, tmp_path / "campplus_cn_common.bin")
    assert load_embedder(tmp_path).name == "campplus"


def test_missing_misshapen_unknown_and_infinite_tensors_are_named(
    state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    name = "xvector.block2.tdnnd3.cam_layer.linear_local.weight"
    broken: list[tuple[dict[str, torch.Tensor], str]] = [
        ({key: tensor for key, tensor in state.items() if key != name}, f"tensor {name} is missing"),
        ({**state, name: torch.zeros(32, 128, 5)}, r"has shape \(32, 128, 5\), expected \(32, 128, 3\)"),
        ({**state, "head.extra": torch.zeros(1)}, r"tensor head\.extra is not part of CampPlus"),
        ({**state, name: torch.full((32, 128, 3), torch.inf)}, "not finite"),
    ]
    for tensors, message in broken:
        torch.save(tensors, tmp_path / "campplus_cn_common.bin")
        with pytest.raises(BrokenSpeakerWeights, match=message):
            load_embedder(tmp_path)


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_truncated_checkpoint(size: int, checkpoints: Path, tmp_path: Path) -> None:
    content = (checkpoints / "campplus" / "campplus_cn_common.bin").read_bytes()
    (tmp_path / "campplus_cn_common.bin").write_bytes(content[:size])
    with pytest.raises(BrokenSpeakerWeights, match="not a checkpoint of plain tensors"):
        load_embedder(tmp_path)


def test_pickled_code_is_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (marker,)

    torch.save({"state_dict": Bomb()}, tmp_path / "campplus_cn_common.bin")
    with pytest.raises(BrokenSpeakerWeights):
        load_embedder(tmp_path)
    assert not marker.exists()
