"""Whisper weights as CTranslate2 stores them, rewritten once as a Hugging Face model directory."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engine.native.ct2 import BrokenModelFile, Ct2Model, Tensor, parse_ct2

_RECORD = "source.json"
_LAYOUT = 1
"""Raised whenever the conversion below writes something else for the same source."""
_TIMESTAMPS = 1501
"""Timestamp tokens of every Whisper: 0.00 to 30.00 s in steps of 0.02 s."""


class ChecksumMismatch(ValueError):
    """A source file is not the one that was published."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that takes part in a conversion, with the checksum of what was published."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Ct2Source:
    """Whisper in CTranslate2's format: `model.bin` in one or more parts, in order, and what lies beside it."""

    model: Sequence[SourceFile]
    config: SourceFile
    tokenizer: SourceFile

    @property
    def record(self) -> dict[str, Any]:
        """What identifies the source, and so the result of converting it."""
        files = [*self.model, self.config, self.tokenizer]
        return {"layout": _LAYOUT, "sha256": [file.sha256 for file in files]}


def convert_whisper(source: Ct2Source, target: Path) -> Path:
    """Make `target` a Hugging Face directory of the model, unless it already is one of this very source.

    Safe against a crash and a second process: the directory appears whole, under a lock.

    Raises:
        ChecksumMismatch: a source file is damaged.
        BrokenModelFile: a source file is not a Whisper model of float weights.
        OSError: the source cannot be read or the target not written.
    """
    if _is_made_of(target, source):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f"{target.name}.lock")):
        if not _is_made_of(target, source):
            _replace(source, target)
    return target


def _is_made_of(target: Path, source: Ct2Source) -> bool:
    try:
        return bool(json.loads((target / _RECORD).read_text()) == source.record)
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(source: Ct2Source, target: Path) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        _write(source, fresh)
        if target.exists():
            shutil.rmtree(target)
        os.replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(source: Ct2Source, directory: Path) -> None:
    config = json.loads(_read(source.config))
    tokenizer = _with_timestamps(json.loads(_read(source.tokenizer)))
    model = parse_ct2(_read(*source.model))
    if model.specification != "WhisperSpec":
        raise BrokenModelFile(f"the model file holds a {model.specification}, not Whisper")
    tokens = _TokenIds.of(tokenizer)
    save_file(whisper_tensors(model), directory / "model.safetensors", {"format": "pt"})
    _dump(directory / "config.json", _model_config(model, tokens))
    _dump(directory / "generation_config.json", _generation_config(config, tokens))
    _dump(directory / "preprocessor_config.json", _preprocessor_config(model))
    _write_tokenizer(directory, tokenizer)
    _dump(directory / _RECORD, source.record)


def _read(*files: SourceFile) -> bytearray:
    """The bytes of the files one after the other, each checked against its checksum."""
    data = bytearray(sum(file.path.stat().st_size for file in files))
    rest = memoryview(data)
    for file in files:
        with file.path.open("rb") as stream:
            count = stream.readinto(rest)
        if hashlib.sha256(rest[:count]).hexdigest() != file.sha256:
            raise ChecksumMismatch(f"{file.path.name} is damaged: its sha256 is not {file.sha256}; install it again")
        rest = rest[count:]
    return data


def _dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")


def whisper_tensors(model: Ct2Model) -> dict[str, Tensor]:
    """The weights under the names of Hugging Face's `WhisperForConditionalGeneration`, type unchanged.

    CTranslate2 fuses query, key and value of the self-attention, and key and value of the cross-attention; the key has
    no bias in Whisper, so its part of the fused bias is zero and is dropped.
    """
    quantized = [name for name in model.variables if name.endswith("_scale")]
    if quantized:
        raise BrokenModelFile("the weights are quantized; only float16 and float32 can be converted")
    tensors: dict[str, Tensor] = {}
    for name, value in model.variables.items():
        if value.ndim:
            tensors |= {f"model.{new}": np.ascontiguousarray(part) for new, part in _renamed(name, value)}
    return tensors


_ATTENTION = {
    "self_attention": ("self_attn", (("q_proj", "k_proj", "v_proj"), ("out_proj",))),
    "attention": ("encoder_attn", (("q_proj",), ("k_proj", "v_proj"), ("out_proj",))),
}
_PLAIN = {"embeddings": "embed_tokens", "position_encodings": "embed_positions"}
_FEED_FORWARD = {"linear_0": "fc1", "linear_1": "fc2", "layer_norm": "final_layer_norm"}
_KINDS = {"gamma": "weight", "beta": "bias", "encodings": "weight"}


def _renamed(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    side, *path, kind = name.split("/")
    kind = _KINDS.get(kind, kind)
    if not path[0].startswith("layer_") or path[0] == "layer_norm":
        yield f"{side}.{_PLAIN.get(path[0], path[0])}.{kind}", value
        return
    layer, block, part = f"{side}.layers.{path[0].removeprefix('layer_')}", path[1], path[2]
    if block == "ffn":
        yield f"{layer}.{_FEED_FORWARD[part]}.{kind}", value
        return
    attention, linears = _ATTENTION[block]
    if part == "layer_norm":
        yield f"{layer}.{attention}_layer_norm.{kind}", value
        return
    projections = linears[int(part.removeprefix("linear_"))]
    for projection, piece in zip(projections, np.split(value, len(projections)), strict=True):
        if (projection, kind) != ("k_proj", "bias"):
            yield f"{layer}.{attention}.{projection}.{kind}", piece


@dataclass(frozen=True, slots=True)
class _TokenIds:
    end: int
    start: int
    no_timestamps: int
    transcribe: int
    translate: int
    previous: int
    languages: Mapping[str, int]
    multilingual: bool

    @classmethod
    def of(cls, tokenizer: Mapping[str, Any]) -> _TokenIds:
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        start, translate = ids["<|startoftranscript|>"], ids["<|translate|>"]
        return cls(
            end=ids["<|endoftext|>"],
            start=start,
            no_timestamps=ids["<|notimestamps|>"],
            transcribe=ids["<|transcribe|>"],
            translate=translate,
            previous=ids["<|startofprev|>"],
            languages={text: i for text, i in ids.items() if start < i < translate},
            # The English-only vocabulary is GPT-2's, one token shorter.
            multilingual=ids["<|endoftext|>"] > 50256,
        )


def _with_timestamps(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer with the timestamp tokens that CTranslate2's copy of it leaves out."""
    added = tokenizer["added_tokens"]
    first = max(token["id"] for token in added) + 1
    if any(token["content"] == "<|0.00|>" for token in added):
        return tokenizer
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    stamps = [{"id": first + n, "content": f"<|{n * 0.02:.2f}|>", **flags} for n in range(_TIMESTAMPS)]
    return {**tokenizer, "added_tokens": [*added, *stamps]}


def _write_tokenizer(directory: Path, tokenizer: Mapping[str, Any]) -> None:
    _dump(directory / "tokenizer.json", tokenizer)
    _dump(directory / "vocab.json", tokenizer["model"]["vocab"])
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
    _dump(directory / "added_tokens.json", {token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    end = "<|endoftext|>"
    special = {"bos_token": end, "eos_token": end, "pad_token": end, "unk_token": end}
    _dump(directory / "special_tokens_map.json", special)
    named = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", "add_prefix_space": False}
    keeping = {"clean_up_tokenization_spaces": False, "model_max_length": 1024, "errors": "replace"}
    _dump(directory / "tokenizer_config.json", {**named, **keeping, **special})


def _model_config(model: Ct2Model, tokens: _TokenIds) -> dict[str, Any]:
    v = model.variables
    sizes: dict[str, Any] = {"vocab_size": v["decoder/embeddings/weight"].shape[0]}
    for side in ("encoder", "decoder"):
        layers = {name.split("/")[1] for name in v if name.startswith(f"{side}/layer_") and "layer_norm/" not in name}
        sizes[f"{side}_layers"] = len(layers)
        sizes[f"{side}_attention_heads"] = int(v[f"{side}/num_heads"])
        sizes[f"{side}_ffn_dim"] = v[f"{side}/layer_0/ffn/linear_0/weight"].shape[0]
    conv = v["encoder/conv1/weight"]
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "d_model": conv.shape[0],
        "num_mel_bins": conv.shape[1],
        "num_hidden_layers": sizes["encoder_layers"],
        "max_source_positions": v["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": v["decoder/position_encodings/encodings"].shape[0],
        "scale_embedding": False,
        "bos_token_id": tokens.end,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "dtype": str(conv.dtype),
        **sizes,
    }


def _generation_config(config: Mapping[str, Any], tokens: _TokenIds) -> dict[str, Any]:
    values = {
        "alignment_heads": config.get("alignment_heads"),
        "suppress_tokens": config.get("suppress_ids"),
        "begin_suppress_tokens": config.get("suppress_ids_begin"),
        "bos_token_id": tokens.end,
        "eos_token_id": tokens.end,
        "pad_token_id": tokens.end,
        "decoder_start_token_id": tokens.start,
        "no_timestamps_token_id": tokens.no_timestamps,
        "prev_sot_token_id": tokens.previous,
        "is_multilingual": tokens.multilingual,
        "max_length": 448,
    }
    if tokens.multilingual:
        values["lang_to_id"] = dict(tokens.languages)
        values["task_to_id"] = {"transcribe": tokens.transcribe, "translate": tokens.translate}
    return {name: value for name, value in values.items() if value is not None}


def _preprocessor_config(model: Ct2Model) -> dict[str, Any]:
    """Whisper's log-mel features (arXiv 2212.04356, section 2.2): 25 ms windows every 10 ms, 30 s at a time."""
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": model.variables["encoder/conv1/weight"].shape[1],
        "sampling_rate": 16_000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480_000,
        "nb_max_frames": 3_000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
