from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.native.convert import ChecksumMismatch, Ct2Source, SourceFile, convert_whisper, whisper_tensors
from engine.native.ct2 import BrokenModelFile, Tensor, parse_ct2

Pack = Callable[..., bytes]
_SPECIAL = ("endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startoflm", "startofprev")


def _source(folder: Path, model: bytes) -> Ct2Source:
    """A source in two parts, with a tokenizer whose special tokens begin at the multilingual 50257."""
    names = [f"<|{name}|>" for name in (*_SPECIAL, "nocaptions", "notimestamps")]
    tokenizer = {
        "added_tokens": [{"id": 50257 + number, "content": name} for number, name in enumerate(names)],
        "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    }
    config = {"alignment_heads": [[0, 1]], "suppress_ids": [1, 2], "suppress_ids_begin": [0]}
    half = len(model) // 2
    contents = {
        "part1": model[:half],
        "part2": model[half:],
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
    }
    files = {}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        files[name] = SourceFile(folder / name, hashlib.sha256(data).hexdigest())
    return Ct2Source((files["part1"], files["part2"]), files["config.json"], files["tokenizer.json"])


def test_fused_weights_are_split(pack_ct2: Pack, tiny_whisper: dict[str, Tensor]) -> None:
    tensors = whisper_tensors(parse_ct2(pack_ct2(tiny_whisper)))
    fused = tiny_whisper["decoder/layer_0/self_attention/linear_0/weight"]
    for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
        part = tensors[f"model.decoder.layers.0.self_attn.{name}.weight"]
        np.testing.assert_array_equal(part, fused[4 * number : 4 * number + 4])
    fused = tiny_whisper["decoder/layer_0/attention/linear_1/bias"]
    np.testing.assert_array_equal(tensors["model.decoder.layers.0.encoder_attn.v_proj.bias"], fused[4:])
    assert not [name for name in tensors if name.endswith("k_proj.bias")]
    norm = tiny_whisper["encoder/layer_0/ffn/layer_norm/gamma"]
    np.testing.assert_array_equal(tensors["model.encoder.layers.0.final_layer_norm.weight"], norm)
    # 15 tensors a layer, 9 more for cross-attention; 4 + 2 + 1 around the encoder, 2 + 2 around the decoder.
    assert len(tensors) == 15 + 24 + 7 + 4


def test_a_directory_in_the_hugging_face_layout(
    tmp_path: Path, pack_ct2: Pack, tiny_whisper: dict[str, Tensor]
) -> None:
    target = convert_whisper(_source(tmp_path, pack_ct2(tiny_whisper)), tmp_path / "cache" / "tiny")
    config = json.loads((target / "config.json").read_text())
    assert (config["d_model"], config["decoder_layers"], config["encoder_ffn_dim"]) == (4, 1, 8)
    assert (config["vocab_size"], config["max_source_positions"], config["decoder_attention_heads"]) == (11, 6, 2)
    generation = json.loads((target / "generation_config.json").read_text())
    assert generation["alignment_heads"] == [[0, 1]]
    assert generation["lang_to_id"] == {"<|en|>": 50259, "<|de|>": 50260}
    added = json.loads((target / "tokenizer.json").read_text())["added_tokens"]
    assert (added[10]["content"], added[10]["id"]) == ("<|0.00|>", 50267)
    assert (added[-1]["content"], len(added)) == ("<|30.00|>", 10 + 1501)
    assert (target / "merges.txt").read_text().splitlines() == ["#version: 0.2", "a b"]
    assert len(load_file(target / "model.safetensors")) == 50


def test_made_once_and_again_only_for_another_source(
    tmp_path: Path, pack_ct2: Pack, tiny_whisper: dict[str, Tensor]
) -> None:
    target = tmp_path / "cache" / "tiny"
    source = _source(tmp_path, pack_ct2(tiny_whisper))
    made = convert_whisper(source, target).stat().st_ino
    source.model[0].path.unlink()
    assert convert_whisper(source, target).stat().st_ino == made
    tiny_whisper["encoder/conv1/bias"] += 1
    changed = _source(tmp_path, pack_ct2(tiny_whisper))
    tensors = load_file(convert_whisper(changed, target) / "model.safetensors")
    np.testing.assert_array_equal(tensors["model.encoder.conv1.bias"], tiny_whisper["encoder/conv1/bias"])


def test_a_damaged_source_leaves_nothing_behind(
    tmp_path: Path, pack_ct2: Pack, tiny_whisper: dict[str, Tensor]
) -> None:
    source = _source(tmp_path, pack_ct2(tiny_whisper))
    data = bytearray(source.model[1].path.read_bytes())
    data[-100] ^= 1
    source.model[1].path.write_bytes(data)
    with pytest.raises(ChecksumMismatch, match="part2 is damaged"):
        convert_whisper(source, tmp_path / "cache" / "tiny")
    assert os.listdir(tmp_path / "cache") == ["tiny.lock"]


def test_quantized_and_foreign_models_are_refused(
    tmp_path: Path, pack_ct2: Pack, tiny_whisper: dict[str, Tensor]
) -> None:
    quantized = tiny_whisper | {"decoder/embeddings/weight_scale": np.ones(11, np.float32)}
    with pytest.raises(BrokenModelFile, match="quantized"):
        convert_whisper(_source(tmp_path, pack_ct2(quantized)), tmp_path / "cache" / "tiny")
    with pytest.raises(BrokenModelFile, match="TransformerSpec"):
        convert_whisper(_source(tmp_path, pack_ct2(tiny_whisper, "TransformerSpec")), tmp_path / "cache" / "tiny")


def test_several_at_once_end_with_one_whole_directory(
    tmp_path: Path, pack_ct2: Pack, tiny_whisper: dict[str, Tensor]
) -> None:
    source, target = _source(tmp_path, pack_ct2(tiny_whisper)), tmp_path / "cache" / "tiny"
    threads = [threading.Thread(target=convert_whisper, args=(source, target)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(os.listdir(target.parent)) == ["tiny", "tiny.lock"]
    assert len(load_file(target / "model.safetensors")) == 50
