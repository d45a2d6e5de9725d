"""Teacher-forced runs of Whisper's decoder that keep what vLLM does not give: the cross-attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn import functional

from audio.shared import Waveform
from audio.span import SAMPLE_RATE

Heads = tuple[tuple[int, int], ...]
"""Pairs of decoder layer and head."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip and the tokens that are said to be in it. `states` is its encoder output (frames, width), if known."""

    audio: Waveform
    tokens: Sequence[int]
    states: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Attention:
    """`weights` (clips, heads, tokens, frames) sum to 1 over frames; `start` (clips, vocabulary) are log-probabilities
    of what follows the token at `start_index`."""

    weights: torch.Tensor
    start: torch.Tensor


class Decoder(Protocol):
    """A decoder that shows its cross-attention."""

    def attend(self, clips: Sequence[Clip], start_index: int) -> Attention:
        """Run the decoder over the tokens of clips, which may differ in number."""


class SharedDecoder:
    """Whisper's decoder on the modules of vLLM's own model: no second copy of the weights."""

    def __init__(self, model: Any, heads: Heads) -> None:
        self._decoder = model.model.decoder
        self._compute_logits = model.compute_logits
        self._heads = heads

    @torch.inference_mode()
    def attend(self, clips: Sequence[Clip], start_index: int) -> Attention:
        held = [clip.states for clip in clips if clip.states is not None]
        if len(held) < len(clips):
            raise ValueError("a clip without encoder output")
        states = torch.stack(held)
        tokens = _padded([clip.tokens for clip in clips], states.device)
        x = self._decoder.embed_tokens(tokens) + self._decoder.embed_positions.weight[: tokens.shape[1]]
        kept: dict[tuple[int, int], torch.Tensor] = {}
        for number, layer in enumerate(self._decoder.layers):
            x = x + _self_attention(layer.self_attn, layer.self_attn_layer_norm(x))
            update, weights = _cross_attention(layer.encoder_attn, layer.encoder_attn_layer_norm(x), states)
            kept |= {(number, head): weights[:, head] for at, head in self._heads if at == number}
            x = x + update
            x = x + layer.mlp(layer.final_layer_norm(x))
        hidden = self._decoder.layer_norm(x[:, start_index])
        logits = self._compute_logits(hidden).float()
        return Attention(torch.stack([kept[pair] for pair in self._heads], 1), logits.log_softmax(-1))


class SeparateDecoder:
    """Whisper from its directory through `transformers`, encoder included: for engines whose model is out of reach."""

    def __init__(self, directory: Path, heads: Heads, device: str, dtype: torch.dtype) -> None:
        from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

        self._features = WhisperFeatureExtractor.from_pretrained(directory)
        model = WhisperForConditionalGeneration.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
        self._model = model.eval().to(device)
        self._heads = heads

    @torch.inference_mode()
    def attend(self, clips: Sequence[Clip], start_index: int) -> Attention:
        audio = [clip.audio for clip in clips]
        features = self._features(audio, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        result = self._model(
            input_features=features.to(self._model.device, self._model.dtype),
            decoder_input_ids=_padded([clip.tokens for clip in clips], self._model.device),
            output_attentions=True,
        )
        weights = torch.stack([result.cross_attentions[layer][:, head] for layer, head in self._heads], 1)
        return Attention(weights.float(), result.logits[:, start_index].float().log_softmax(-1))


def _padded(tokens: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """(clips, longest); what pads a row comes after it, where a causal decoder does not look."""
    rows = [torch.tensor(row, device=device) for row in tokens]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def _linear(module: Any, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = module(x.reshape(-1, x.shape[-1]))[0]
    return y.view(*x.shape[:-1], -1)


def _split_heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.view(*x.shape[:-1], count, -1).transpose(1, 2)


def _self_attention(module: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (_split_heads(part, module.num_heads) for part in _linear(module.qkv_proj, x).chunk(3, -1))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return _linear(module.out_proj, mixed.transpose(1, 2).flatten(2))


def _cross_attention(module: Any, x: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q = _split_heads(_linear(module.q_proj, x), module.num_heads)
    k, v = (_split_heads(part, module.num_heads) for part in _linear(module.kv_proj, states).chunk(2, -1))
    weights = (q @ k.transpose(-1, -2) * module.scaling).float().softmax(-1)
    mixed = weights.to(v.dtype) @ v
    return _linear(module.out_proj, mixed.transpose(1, 2).flatten(2)), weights
