"""The language model in plain torch: slow, short, and what every faster path is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.prompt import Prompt
from engine.recognition import FinishReason


@dataclass(frozen=True, slots=True)
class Decoded:
    """Generated ids, the stop id not among them."""

    ids: tuple[int, ...]
    finish_reason: FinishReason


class PromptEmbedder:
    """Puts the embeddings of the sound between those of the prompt's tokens."""

    def __init__(self, table: Tensor) -> None:
        """`table`: (vocabulary, hidden), on the device and in the type that the language model takes."""
        self._table = table

    def __call__(self, prompt: Prompt, sound: Tensor) -> Tensor:
        """(tokens, hidden) from (n, hidden) of sound.

        Raises:
            ValueError: the sound has no rows, or another width than the language model: vLLM would not survive it.
        """
        if sound.ndim != 2 or not len(sound) or sound.shape[1] != self._table.shape[1]:
            raise ValueError(f"the sound's embeddings are {list(sound.shape)}, expected [n, {self._table.shape[1]}]")
        return torch.cat([self._rows(prompt.prefix), sound.to(self._table), self._rows(prompt.suffix)])

    def _rows(self, ids: Sequence[int]) -> Tensor:
        return F.embedding(torch.tensor(ids, device=self._table.device), self._table)


class GreedyDecoder:
    """Qwen3 of a checkpoint, one prompt at a time."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        config = Qwen3Config.from_json_file(str(checkpoint.paths.llm / "config.json"))
        model: Any = Qwen3ForCausalLM.from_pretrained(
            None, config=config, state_dict=dict(checkpoint.language_model), dtype=dtype, local_files_only=True
        )
        self._device = device
        self._model = model.to(device).eval()

    @torch.inference_mode()
    def decode(self, prompt: Tensor, *, max_new_tokens: int, stop_ids: Sequence[int]) -> Decoded:
        """Take the likeliest token again and again, until a stop id or the limit. `prompt`: (tokens, hidden)."""
        ids: list[int] = []
        out = self._model(inputs_embeds=prompt[None], use_cache=True)
        for _ in range(max_new_tokens):
            token = int(out.logits[0, -1].argmax())
            if token in stop_ids:
                return Decoded(tuple(ids), "stop")
            ids.append(token)
            out = self._model(
                input_ids=torch.tensor([[token]], device=self._device),
                past_key_values=out.past_key_values,
                use_cache=True,
            )
        return Decoded(tuple(ids), "length")
