"""The tensors of Qwen3 inside a Fun-ASR-Nano checkpoint, under the names that Qwen3 itself has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from engine.fun_asr_nano.config import LlmConfig, NanoConfig
from engine.fun_asr_nano.errors import TensorMismatch
from engine.fun_asr_nano.tensors import Shape, check_shapes

_T = TypeVar("_T")

_PREFIX = "llm."
_PEFT_PREFIX = "base_model.model."  # what the adapter library puts in front, and around a layer it adapts
_PEFT_BASE = ".base_layer"
_LOW_RANK = re.compile(r"(?P<layer>.+)\.lora_(?P<side>[AB])(?:\.\w+)?\.weight")
_HEAD, _TABLE = "lm_head.weight", "model.embed_tokens.weight"


def language_model_tensors(tensors: Mapping[str, Tensor], config: NanoConfig, source: Path) -> dict[str, Tensor]:
    """Pick, check and complete the language model's tensors.

    Low-rank updates of a fine-tuning are folded in, W + (alpha / r) B A, computed in float32 ("LoRA", Hu et al., 2021).
    The head is left out where the configuration ties it to the embedding table.

    Raises:
        TensorMismatch: a tensor is missing, does not fit, or would be lost.
    """
    plain: dict[str, Tensor] = {}
    updates: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if not name.startswith(_PREFIX):
            continue
        own = name.removeprefix(_PREFIX).removeprefix(_PEFT_PREFIX)
        if match := _LOW_RANK.fullmatch(own):
            updates.setdefault(match["layer"] + ".weight", {})[match["side"]] = tensor
        elif "lora_" in own:
            raise TensorMismatch(f"{source}: {name} is a kind of low-rank update that is not supported")
        else:
            plain[own.replace(_PEFT_BASE, "")] = tensor
    shapes = _shapes(config.llm)
    check_shapes(_published(plain), _published(shapes), source)
    if config.llm.tied and _HEAD in plain and not _same(plain[_HEAD], plain[_TABLE]):
        raise TensorMismatch(f"{source}: llm.{_HEAD} differs from llm.{_TABLE}, though the configuration ties them")
    for name, pair in updates.items():
        plain[name] = _folded(plain.get(name), pair, config.lora_alpha, f"{source}: llm.{name}")
    return {name: plain[name] for name in shapes}


def _shapes(config: LlmConfig) -> dict[str, Shape]:
    """Names and shapes of Qwen3's tensors."""
    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (config.head_dim,),
        "self_attn.k_norm": (config.head_dim,),
        "mlp.gate_proj": (config.intermediate, hidden),
        "mlp.up_proj": (config.intermediate, hidden),
        "mlp.down_proj": (hidden, config.intermediate),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes: dict[str, Shape] = {_TABLE: (config.vocabulary, hidden)}
    for index in range(config.layers):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied:
        shapes[_HEAD] = (config.vocabulary, hidden)
    return shapes


def _published(named: Mapping[str, _T]) -> dict[str, _T]:
    """The same under the names of the checkpoint, for messages."""
    return {_PREFIX + name: value for name, value in named.items()}


def _same(head: Tensor, table: Tensor) -> bool:
    return head.data_ptr() == table.data_ptr() or torch.equal(head, table)


def _folded(weight: Tensor | None, pair: Mapping[str, Tensor], alpha: float | None, name: str) -> Tensor:
    if weight is None or set(pair) != {"A", "B"}:
        raise TensorMismatch(f"{name} has an incomplete low-rank update")
    down, up = pair["A"].float(), pair["B"].float()
    if alpha is None:
        raise TensorMismatch(f"{name} has a low-rank update, but config.yaml has no llm_conf.lora_conf.lora_alpha")
    if down.ndim != 2 or up.ndim != 2 or (up.shape[0], down.shape[1]) != weight.shape or up.shape[1] != down.shape[0]:
        raise TensorMismatch(f"{name} is {list(weight.shape)}, its update {list(up.shape)} x {list(down.shape)}")
    return (weight.float() + alpha / down.shape[0] * (up @ down)).to(weight.dtype)
