"""The language model in plain torch: slow, short, and what every faster path is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.decoding import Completion, check_prompt
from engine.recognition import FinishReason


@dataclass(frozen=True, slots=True)
class Decoded:
    """Generated ids, the stop id not among them, and their log probabilities, that of the stop id too."""

    ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...]


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
        logprobs: list[float] = []
        out = self._model(inputs_embeds=prompt[None], use_cache=True)
        for _ in range(max_new_tokens):
            token = int(out.logits[0, -1].argmax())
            logprobs.append(float(out.logits[0, -1].float().log_softmax(-1)[token]))
            if token in stop_ids:
                return Decoded(tuple(ids), "stop", tuple(logprobs))
            ids.append(token)
            out = self._model(
                input_ids=torch.tensor([[token]], device=self._device),
                past_key_values=out.past_key_values,
                use_cache=True,
            )
        return Decoded(tuple(ids), "length", tuple(logprobs))


class TorchDecoder:
    """A `Decoder` in plain torch: one prompt a step, from its beginning to its end."""

    capacity = 1

    def __init__(self, decoder: GreedyDecoder, *, stop_ids: Sequence[int], context: int, width: int) -> None:
        self._decoder = decoder
        self._stop_ids = stop_ids
        self._queue: dict[str, tuple[Tensor, int, bool]] = {}
        self.context = context
        self.width = width

    def add(self, key: str, prompt: Tensor, *, max_new_tokens: int, temperature: float, logprobs: bool = False) -> None:
        check_prompt(self, prompt, max_new_tokens)
        if temperature > 0:
            raise ValueError("the decoder in plain torch is greedy: the temperature must be 0")
        self._queue[key] = (prompt, max_new_tokens, logprobs)

    def abort(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._queue.pop(key, None)

    def step(self) -> list[Completion]:
        if not self._queue:
            return []
        key = next(iter(self._queue))
        prompt, limit, logprobs = self._queue.pop(key)
        decoded = self._decoder.decode(prompt, max_new_tokens=limit, stop_ids=self._stop_ids)
        return [Completion(key, decoded.ids, decoded.finish_reason, decoded.logprobs if logprobs else None)]

    def close(self) -> None:
        self._queue.clear()
