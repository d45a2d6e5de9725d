"""The language model that writes the text: what the recogniser needs of it, and vLLM as that."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.native import vllm_compat
from engine.native.engine_stats import EngineStats
from engine.recognition import FinishReason


@dataclass(frozen=True, slots=True)
class Completion:
    """What came of a prompt: the generated ids, the stop id not among them.

    `logprobs` are natural log probabilities, where they were asked for: one an id, then that of the stop id if it came.
    """

    key: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...] | None = None


class Decoder(Protocol):
    """Continues prompts that are given as embeddings; many at a time.

    `capacity` is how many prompts it works on together, `context` the most tokens of a prompt and its answer, `width`
    that of an embedding.
    """

    capacity: int
    context: int
    width: int

    def add(self, key: str, prompt: Tensor, *, max_new_tokens: int, temperature: float, logprobs: bool = False) -> None:
        """Queue a prompt, (tokens, width) on the CPU.

        Raises:
            ValueError: the prompt has a wrong shape or leaves no room for the answer; the decoder is unharmed.
        """

    def abort(self, keys: Sequence[str]) -> None:
        """Forget prompts; unknown and finished ones are ignored."""

    def step(self) -> list[Completion]:
        """Move all prompts on by about a token, and return those that are finished."""

    def close(self) -> None: ...


def check_prompt(decoder: Decoder, prompt: Tensor, max_new_tokens: int) -> None:
    """Refuse what an engine might die of.

    Raises:
        ValueError: says what is wrong with the prompt.
    """
    if prompt.ndim != 2 or prompt.shape[1] != decoder.width or prompt.device.type != "cpu":
        raise ValueError(f"a prompt is {list(prompt.shape)} on {prompt.device}, expected [n, {decoder.width}] on cpu")
    if len(prompt) == 0 or max_new_tokens < 1 or len(prompt) + max_new_tokens > decoder.context:
        raise ValueError(
            f"a prompt of {len(prompt)} and an answer of {max_new_tokens} tokens do not fit a context of "
            f"{decoder.context}"
        )


class VllmDecoder:
    """vLLM's `LLMEngine` in this process, fed with embeddings. Texts are not made in it: only ids come back.

    A repetition penalty is not offered: with prompt embeddings it reads token ids that do not exist and kills the CUDA
    context.
    """

    def __init__(self, engine: Any, *, stop_ids: Sequence[int], fixed_tokens: int | None = None) -> None:
        """`fixed_tokens` is for measuring with random weights: every answer has this length, whatever is in it."""
        self.engine = engine
        self._stats = EngineStats(engine)
        self._stop_ids = tuple(stop_ids)
        self._fixed_tokens = fixed_tokens
        self.capacity: int = engine.vllm_config.scheduler_config.max_num_seqs
        self.context: int = engine.model_config.max_model_len
        self.width: int = engine.model_config.get_hidden_size()
        self.dtype: torch.dtype = engine.model_config.dtype
        self._parameters = functools.lru_cache(maxsize=1024)(self._make_parameters)  # vLLM copies them

    @property
    def counters(self) -> Mapping[str, float]:
        """Totals of the engine, by vLLM's names for them."""
        return self._stats.counters

    @property
    def gauges(self) -> Mapping[str, float]:
        """How the engine is now, by vLLM's names for it."""
        return self._stats.gauges

    def add(self, key: str, prompt: Tensor, *, max_new_tokens: int, temperature: float, logprobs: bool = False) -> None:
        from vllm.inputs import embeds_input

        limit = max_new_tokens if self._fixed_tokens is None else self._fixed_tokens
        check_prompt(self, prompt, limit)
        if prompt.dtype != self.dtype:
            raise ValueError(f"a prompt is {prompt.dtype}, the engine computes in {self.dtype}")
        # What vLLM makes of a prompt with embeddings, without the way there: they lie on the CPU already.
        self.engine.add_request(key, embeds_input(prompt), self._parameters(limit, temperature, logprobs))

    def _make_parameters(self, limit: int, temperature: float, logprobs: bool) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        fixed = self._fixed_tokens is not None
        return SamplingParams(
            temperature=temperature,
            max_tokens=limit,
            min_tokens=limit if fixed else 0,
            ignore_eos=fixed,
            stop_token_ids=[] if fixed else list(self._stop_ids),
            detokenize=False,
            logprobs=0 if logprobs else None,  # of the sampled token alone
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def abort(self, keys: Sequence[str]) -> None:
        if keys:
            self.engine.abort_request(list(keys))

    def step(self) -> list[Completion]:
        return [self._completion(result) for result in self.engine.step() if result.finished]

    def _completion(self, result: Any) -> Completion:
        answer = result.outputs[0]
        ids = tuple(answer.token_ids)
        logprobs = None
        if answer.logprobs is not None:
            logprobs = tuple(at[token].logprob for token, at in zip(ids, answer.logprobs, strict=True))
        if answer.finish_reason == "length":
            # A fixed length is what was asked for, not a text that was cut off.
            return Completion(result.request_id, ids, "length" if self._fixed_tokens is None else "stop", logprobs)
        said = ids[:-1] if ids and ids[-1] in self._stop_ids else ids
        return Completion(result.request_id, said, "stop", logprobs)

    def close(self) -> None:
        vllm_compat.close_engine(self.engine)


def build_engine(directory: Path, device: vllm_compat.Device, options: Mapping[str, Any]) -> Any:
    """The engine of an extracted language model; `options` are arguments of vLLM's `EngineArgs` that override ours.

    Raises:
        ValueError: half precision is asked for, in which this language model overflows.
    """
    if str(options.get("dtype", "")).removeprefix("torch.") in ("float16", "half"):
        raise ValueError("Fun-ASR-Nano overflows in float16; use bfloat16, or float32 where the GPU has no bfloat16")
    return vllm_compat.build_engine(directory, device, {**_ENGINE, **_ENGINE_ON[device], **options})


_ENGINE: Mapping[str, Any] = {
    "enable_prompt_embeds": True,
    "skip_tokenizer_init": True,  # it sees no text
    "generation_config": "vllm",  # what the model directory says about sampling is not for transcripts
    # 60 s of sound (125 tokens), their longest answer (992), and 900 tokens of hotwords.
    "max_model_len": 2048,
}
_ENGINE_ON: Mapping[vllm_compat.Device, Mapping[str, Any]] = {
    "cpu": {"max_num_seqs": 32},
    "cuda": {
        "dtype": "bfloat16",
        "gpu_memory_utilization": 0.5,  # the other half is for the encoder, voice activity and speakers
        "max_num_seqs": 512,
        "max_num_batched_tokens": 8192,
    },
}
