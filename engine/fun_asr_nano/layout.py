"""Where the files of a published model directory lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.fun_asr_nano.config import NanoConfig, parse_config
from engine.fun_asr_nano.errors import CheckpointError, MissingFile, UnsupportedConfig, WrongLayout


@dataclass(frozen=True, slots=True)
class CheckpointPaths:
    """Where the parts of a model directory lie. `ctc_ranks` is None where there is no CTC tokenizer."""

    directory: Path
    weights: Path
    llm: Path
    ctc_ranks: Path | None


def read_layout(directory: Path) -> tuple[CheckpointPaths, NanoConfig]:
    """Read `config.yaml`, `configuration.json` where there is one, and the language model's `config.json`.

    Raises:
        CheckpointError: one line that says which file or key is wrong.
    """
    if not directory.is_dir():
        raise MissingFile(f"{directory} is not a directory")
    metas = _file_path_metas(directory)
    main = _find(directory, metas.get("config"), "config.yaml")
    if main is None:
        raise _explain_layout(directory)
    config = _read_yaml(main)
    if config.get("model") != "FunASRNano":
        raise WrongLayout(f"{main}: model is {config.get('model')!r}, expected 'FunASRNano'")
    llm_name = _path_of(metas, "llm_conf", "init_param_path") or _path_of(config, "llm_conf", "init_param_path")
    ranks = _path_of(metas, "dataset_conf", "ctc_tokenizer_conf", "vocab_path")
    ranks = ranks or _path_of(config, "dataset_conf", "ctc_tokenizer_conf", "vocab_path")
    weights = _find(directory, metas.get("init_param"), "model.pt")
    llm = _find(directory, llm_name, "Qwen3-0.6B")
    if weights is None:
        raise MissingFile(f"{directory} has no model.pt")
    if llm is None or not llm.is_dir():
        raise MissingFile(
            f"{directory} has no {llm_name or 'Qwen3-0.6B'} directory with the language model's tokenizer"
        )
    for name in ("config.json", "tokenizer.json"):
        if not (llm / name).is_file():
            raise MissingFile(f"{llm / name} is missing")
    paths = CheckpointPaths(directory, weights, llm, _find(directory, ranks, "multilingual.tiktoken"))
    return paths, parse_config(config, _read_json(llm / "config.json"))


def _explain_layout(directory: Path) -> CheckpointError:
    """Why a directory without `config.yaml` is not a published Fun-ASR-Nano."""
    other = directory / "config.json"
    architectures = _read_json(other).get("architectures") if other.is_file() else None
    if architectures and "FunASRForConditionalGeneration" in architectures:
        return WrongLayout(
            f"{directory} is the Hugging Face conversion for vLLM's own port (…-vllm), with another layout and no CTC "
            "head; use the published FunAudioLLM/Fun-ASR-Nano-2512"
        )
    if architectures:
        return WrongLayout(f"{directory} is a {architectures[0]} model, not a published Fun-ASR-Nano directory")
    return MissingFile(f"{directory} has no config.yaml")


def _find(directory: Path, name: str | None, default: str) -> Path | None:
    """A part of the model: as the configuration names it, or under its published name.

    Fine-tuned copies often keep an absolute path of the machine they were trained on; its last component is then looked
    up here.
    """
    names = [name, Path(name).name, default] if name and not name.startswith("${") else [default]
    return next((path for path in (directory / candidate for candidate in names) if path.exists()), None)


def _path_of(tree: Mapping[str, Any], *keys: str) -> str | None:
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) and value else None


def _file_path_metas(directory: Path) -> Mapping[str, Any]:
    file = directory / "configuration.json"
    metas = _read_json(file).get("file_path_metas") if file.is_file() else None
    return metas if isinstance(metas, Mapping) else {}


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UnsupportedConfig(f"{path} cannot be read: {_one_line(error)}") from error
    return _mapping(path, value)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedConfig(f"{path} cannot be read: {_one_line(error)}") from error
    return _mapping(path, value)


def _mapping(path: Path, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnsupportedConfig(f"{path} is not a mapping")
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
