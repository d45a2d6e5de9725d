"""Model directories as they are published, and as they should not be."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.errors import (
    CheckpointError,
    MissingFile,
    TensorMismatch,
    UnreadableWeights,
    UnsupportedConfig,
    WrongLayout,
)

Tensors = dict[str, torch.Tensor]
Change = Callable[[Callable[[Tensors], object]], None]


def refused(directory: Path, kind: type[CheckpointError], *words: str) -> None:
    """Opening fails with one line that holds these words."""
    with pytest.raises(kind) as caught:
        Checkpoint.open(directory)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def edit_config(directory: Path, by: Callable[[Any], None]) -> None:
    config = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
    by(config)
    (directory / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")


def test_sizes_come_from_the_configuration(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    assert (config.encoder.dim, config.encoder.blocks, config.adaptor.dim, config.llm.layers) == (32, 3, 64, 2)
    assert [config.audio_tokens(rows) for rows in (1, 8, 9, 17, 500, 1000)] == [1, 1, 2, 3, 63, 125]
    assert checkpoint.ctc_missing is None
    assert len(checkpoint.tensors) == 168
    assert "lm_head.weight" not in checkpoint.language_model


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: dict(tensors),
        lambda tensors: {"model_state_dict": tensors, "epoch": 3},
        lambda tensors: {"model": tensors},
        lambda tensors: {"state_dict": {f"module.{name}": tensor for name, tensor in tensors.items()}},
        lambda tensors: {f"module.{name}": tensor for name, tensor in tensors.items()},
    ],
)
def test_every_wrapping(
    model_directory: Path, change_tensors: Change, checkpoint: Checkpoint, wrap: Callable[[Tensors], object]
) -> None:
    change_tensors(wrap)
    opened = Checkpoint.open(model_directory)
    assert opened.tensors.keys() == checkpoint.tensors.keys()
    assert opened.ctc_missing is None


def test_files_of_the_older_format_load(model_directory: Path) -> None:
    file = model_directory / "model.pt"
    torch.save(torch.load(file, weights_only=True), file, _use_new_zipfile_serialization=False)
    assert len(Checkpoint.open(model_directory).tensors) == 168


def test_configuration_json_is_optional_and_may_name_other_files(model_directory: Path) -> None:
    (model_directory / "configuration.json").unlink()
    assert Checkpoint.open(model_directory).ctc_missing is None
    (model_directory / "model.pt").rename(model_directory / "tuned.pt")
    (model_directory / "configuration.json").write_text(json.dumps({"file_path_metas": {"init_param": "tuned.pt"}}))
    assert Checkpoint.open(model_directory).paths.weights == model_directory / "tuned.pt"


def test_paths_of_the_training_machine_are_looked_up_here(model_directory: Path) -> None:
    (model_directory / "configuration.json").unlink()
    (model_directory / "Qwen3-0.6B").rename(model_directory / "qwen")
    edit_config(model_directory, lambda config: config["llm_conf"].update(init_param_path="/home/someone/qwen"))
    assert Checkpoint.open(model_directory).paths.llm == model_directory / "qwen"


@pytest.mark.parametrize("name", ["config.yaml", "model.pt", "Qwen3-0.6B", "Qwen3-0.6B/tokenizer.json"])
def test_a_missing_file_is_named(model_directory: Path, name: str) -> None:
    path = model_directory / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused(model_directory, MissingFile, Path(name).name)


def test_no_directory_at_all(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", MissingFile, "nowhere")
    refused(tmp_path, MissingFile, "config.yaml")


@pytest.mark.parametrize("keep", [0, 3, 1000, -1, -5000])
def test_weights_that_are_cut_off(model_directory: Path, keep: int) -> None:
    file = model_directory / "model.pt"
    content = file.read_bytes()
    file.write_bytes(content[:keep])
    refused(model_directory, UnreadableWeights, "model.pt", "damaged")


def test_weights_that_are_something_else(model_directory: Path, change_tensors: Change) -> None:
    change_tensors(lambda _: {"state_dict": {"epoch": 3}})
    refused(model_directory, UnreadableWeights, "no tensors")
    torch.save([1, 2], model_directory / "model.pt")
    refused(model_directory, UnreadableWeights, "holds a list")
    (model_directory / "model.pt").write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(model_directory, UnreadableWeights, "model.pt")


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_cannot_run_code(model_directory: Path, tmp_path: Path, zipped: bool) -> None:
    target = tmp_path / "ran"
    bomb = {"state_dict": {"x": torch.zeros(1)}, "bomb": Bomb(target)}
    torch.save(bomb, model_directory / "model.pt", _use_new_zipfile_serialization=zipped)
    refused(model_directory, UnreadableWeights, "other than tensors")
    (model_directory / "model.pt").write_bytes(pickle.dumps(bomb))
    refused(model_directory, UnreadableWeights)
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("audio_encoder.encoders.1.self_attn.linear_q_k_v.weight", (96, 31)),
        ("audio_adaptor.blocks.1.norm2.bias", (63,)),
        ("llm.model.layers.1.mlp.up_proj.weight", (191, 64)),
    ],
)
def test_a_wrong_shape_names_the_tensor(
    model_directory: Path, change_tensors: Change, name: str, shape: tuple[int, ...]
) -> None:
    change_tensors(lambda tensors: tensors.update({name: torch.zeros(shape)}))
    found = torch.load(model_directory / "model.pt", weights_only=True)["state_dict"][name]
    assert tuple(found.shape) == shape
    refused(model_directory, TensorMismatch, f"{name} has shape {list(shape)}, expected [")


def test_a_missing_tensor_and_a_wrong_type_are_named(model_directory: Path, change_tensors: Change) -> None:
    name = "audio_encoder.tp_norm.bias"
    change_tensors(lambda tensors: tensors.update({name: torch.zeros(32, dtype=torch.int8)}))
    refused(model_directory, TensorMismatch, f"{name} has type torch.int8")

    def drop(tensors: Tensors) -> None:
        del tensors[name], tensors["llm.model.norm.weight"], tensors["audio_adaptor.linear1.bias"]

    change_tensors(drop)
    refused(model_directory, TensorMismatch, f"{name} is missing, expected shape [32]", "(and 1 more")


def test_another_vocabulary_is_refused(model_directory: Path) -> None:
    file = model_directory / "Qwen3-0.6B" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "vocab_size": 4096}))
    refused(model_directory, TensorMismatch, "llm.model.embed_tokens.weight has shape [2048, 64], expected [4096, 64]")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (("audio_encoder_conf", "output_size"), "32", ("audio_encoder_conf.output_size", "expected int")),
        (("audio_encoder_conf", "num_blocks"), 0, ("num_blocks", "at least 1")),
        (("audio_encoder_conf", "attention_heads"), 5, ("not divisible",)),
        (("audio_encoder_conf", "input_layer"), "conv2d", ("input_layer", "'conv2d'")),
        (("audio_adaptor_conf", "downsample_rate"), 2, ("downsample_rate",)),
        (("audio_adaptor_conf", "llm_dim"), 128, ("llm_dim is 128", "hidden_size 64")),
        (("audio_adaptor_conf", "encoder_dim"), 64, ("encoder_dim is 64", "gives 32")),
        (("frontend_conf", "cmvn_file"), "am.mvn", ("cmvn_file",)),
        (("audio_encoder_conf",), [], ("audio_encoder_conf", "section")),
    ],
)
def test_a_configuration_that_cannot_be_followed(
    model_directory: Path, key: tuple[str, ...], value: object, words: tuple[str, ...]
) -> None:
    def change(config: Any) -> None:
        for part in key[:-1]:
            config = config[part]
        config[key[-1]] = value

    edit_config(model_directory, change)
    refused(model_directory, UnsupportedConfig, *words)


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "\x00"])
def test_a_broken_configuration(model_directory: Path, text: str) -> None:
    (model_directory / "config.yaml").write_text(text)
    refused(model_directory, UnsupportedConfig, "config.yaml")


def test_other_layouts_are_explained(tmp_path: Path, model_directory: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["FunASRForConditionalGeneration"]}))
    refused(tmp_path, WrongLayout, "-vllm", "FunAudioLLM/Fun-ASR-Nano-2512")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["WhisperForConditionalGeneration"]}))
    refused(tmp_path, WrongLayout, "WhisperForConditionalGeneration")
    edit_config(model_directory, lambda config: config.update(model="SenseVoiceSmall"))
    refused(model_directory, WrongLayout, "SenseVoiceSmall")


def without_ctc(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("ctc")}


@pytest.mark.field("C5")
def test_without_ctc_there_is_text_and_a_reason(model_directory: Path, change_tensors: Change) -> None:
    change_tensors(lambda tensors: {"state_dict": without_ctc(tensors)})
    opened = Checkpoint.open(model_directory)
    assert opened.ctc_tokenizer is None
    assert opened.ctc_head() is None
    assert opened.ctc_missing is not None
    assert "ctc_decoder.linear1.weight is missing" in opened.ctc_missing
    edit_config(model_directory, lambda config: config.pop("ctc_decoder"))
    assert Checkpoint.open(model_directory).ctc_missing == "config.yaml has no ctc_decoder"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda d: (d / "multilingual.tiktoken").unlink(), "no multilingual.tiktoken"),
        (lambda d: (d / "multilingual.tiktoken").write_text("AA== 0\n"), "not every single byte"),
        (lambda d: (d / "multilingual.tiktoken").write_text("what is this\n"), "not a rank table"),
        (lambda d: edit_config(d, lambda c: c.update(ctc_vocab_size=60515)), "expected [60515, 32]"),
        (lambda d: edit_config(d, lambda c: c["ctc_decoder_conf"].update(n_layer=5)), "is missing"),
        (lambda d: edit_config(d, lambda c: c["ctc_decoder_conf"].update(encoder_dim=48)), "encoder_dim is 48"),
        (lambda d: edit_config(d, lambda c: c["ctc_decoder_conf"].update(llm_dim="x")), "llm_dim"),
        (lambda d: edit_config(d, lambda c: c.update(ctc_conf={"blank_id": 9999})), "blank_id 9999"),
    ],
)
def test_a_ctc_part_that_does_not_fit_is_left_out(
    model_directory: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(model_directory)
    opened = Checkpoint.open(model_directory)
    assert opened.ctc_head() is None
    assert opened.ctc_missing is not None
    assert reason in opened.ctc_missing


def test_ranks_that_make_another_vocabulary(model_directory: Path) -> None:
    file = model_directory / "multilingual.tiktoken"
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:-1]))
    assert "makes 2078 tokens, the CTC head has 2079" in str(Checkpoint.open(model_directory).ctc_missing)


QUERY = "llm.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize("wrapped", [False, True])
def test_low_rank_updates_are_folded_in(model_directory: Path, change_tensors: Change, wrapped: bool) -> None:
    down, up = torch.randn(4, 64), torch.randn(128, 4)

    def tune(tensors: Tensors) -> object:
        if not wrapped:
            tensors |= {f"{QUERY}.lora_A.weight": down, f"{QUERY}.lora_B.weight": up}
            return None
        renamed = {name.replace("llm.", "llm.base_model.model."): tensor for name, tensor in tensors.items()}
        query = QUERY.replace("llm.", "llm.base_model.model.")
        renamed[f"{query}.base_layer.weight"] = renamed.pop(f"{query}.weight")
        renamed |= {f"{query}.lora_A.default.weight": down, f"{query}.lora_B.default.weight": up}
        return {"state_dict": renamed}

    before = Checkpoint.open(model_directory).language_model["model.layers.0.self_attn.q_proj.weight"].clone()
    change_tensors(tune)
    refused(model_directory, TensorMismatch, "lora_alpha")
    lora = {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj"]}
    edit_config(model_directory, lambda config: config["llm_conf"].update(use_lora=True, lora_conf=lora))
    folded = Checkpoint.open(model_directory).language_model["model.layers.0.self_attn.q_proj.weight"]
    assert torch.allclose(folded, before + 8 * up @ down, atol=1e-4)


@pytest.mark.parametrize(
    "extra",
    [
        {"lora_A.weight": (4, 64)},
        {"lora_A.weight": (4, 63), "lora_B.weight": (128, 4)},
        {"lora_A.weight": (4, 64), "lora_B.weight": (128, 4), "lora_magnitude_vector": (128,)},
    ],
)
def test_updates_that_cannot_be_folded_are_refused(
    model_directory: Path, change_tensors: Change, extra: dict[str, tuple[int, ...]]
) -> None:
    lora = {"r": 4, "lora_alpha": 32}
    edit_config(model_directory, lambda config: config["llm_conf"].update(lora_conf=lora))
    change_tensors(lambda tensors: tensors.update({f"{QUERY}.{n}": torch.zeros(shape) for n, shape in extra.items()}))
    refused(model_directory, TensorMismatch, QUERY)


def test_a_head_that_is_tied_only_on_paper(model_directory: Path, change_tensors: Change) -> None:
    change_tensors(lambda tensors: tensors.update({"llm.lm_head.weight": torch.zeros(2048, 64)}))
    refused(model_directory, TensorMismatch, "llm.lm_head.weight differs")
    file = model_directory / "Qwen3-0.6B" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tie_word_embeddings": False}))
    assert "lm_head.weight" in Checkpoint.open(model_directory).language_model
