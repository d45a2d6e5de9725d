"""Whisper's encoder output, taken from inside vLLM's engine so that no clip is encoded twice.

The encoder is nine tenths of the work on a CPU, and three consumers want its output: language detection, decoding and
word alignment. vLLM runs it for every request anew and throws the output away after one step.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

import torch

from engine.native.vllm_compat import model_runner_of

_EVERY = 31
"""Features looked at to tell clips apart: every 31st of 80 x 3000, some 7,700 values."""


class EncoderTap:
    """Reads encoder outputs by request, and makes vLLM's model reuse those that someone still holds."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._held: WeakValueDictionary[bytes, torch.Tensor] = WeakValueDictionary()
        self.encoded: Callable[[int, float], None] = lambda clips, seconds: None
        """Told how many clips were encoded together, and for how long the caller was busy with it."""
        self._encode = runner.model.embed_multimodal
        runner.model.embed_multimodal = self._embed

    @classmethod
    def attach(cls, engine: Any) -> EncoderTap | None:
        """A tap on the engine, None where vLLM's insides are not as this module knows them."""
        runner = model_runner_of(engine)
        known = hasattr(getattr(runner, "model", None), "embed_multimodal") and _cache(runner) is not None
        return cls(runner) if known else None

    @property
    def model(self) -> Any:
        """The model that vLLM runs, with its weights."""
        return self._runner.model

    def outputs(self, keys: Iterable[str]) -> dict[str, torch.Tensor]:
        """Outputs (frames, width) of clips encoded in the last step, by the `multi_modal_uuids` of their request."""
        cache = _cache(self._runner) or {}
        return {key: cache[key] for key in keys if key in cache}

    def _embed(self, **features: Any) -> Any:
        """Stands in for the model's `embed_multimodal`: the same outputs, known ones not computed again."""
        clips = features.get("input_features")
        if clips is None or len(features) > 1:
            return self._encode(**features)
        keys = [_fingerprint(clip) for clip in clips]
        known = {key: output for key in keys if (output := self._held.get(key)) is not None}
        fresh = [number for number, key in enumerate(keys) if key not in known]
        if fresh:
            some = clips[fresh] if isinstance(clips, torch.Tensor) else [clips[number] for number in fresh]
            began = time.perf_counter()
            known |= zip((keys[number] for number in fresh), self._encode(input_features=some), strict=True)
            self.encoded(len(fresh), time.perf_counter() - began)
            self._held.update(known)
        return tuple(known[key] for key in keys)


def _cache(runner: Any) -> dict[str, torch.Tensor] | None:
    cache = getattr(runner, "encoder_cache", None)
    cache = getattr(cache, "encoder_outputs", cache)
    return cache if isinstance(cache, dict) else None


def _fingerprint(clip: torch.Tensor) -> bytes:
    sample = clip.flatten()[::_EVERY].float().cpu().numpy()
    return hashlib.blake2b(sample.tobytes(), digest_size=16).digest()
