"""Runs where `funasr` is installed: its batch path over vLLM or its PyTorch path, one JSON line a setting.

argv: a JSON object {path: "vllm" | "torch", model, device, clips: [...], seconds: [...], runs}. Scope: float32 arrays
in memory to text (and token times), model loaded and warm. The clips and lengths of answers are those of our own run;
the text that is aligned is replaced by one that fits the sound, as there, because random weights write none that does.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import clips

TOKENS_A_SECOND = 130 / 30
Transcribe = Callable[[list[Any], int], list[dict[str, Any]]]


_CLASSES = (
    "funasr.frontends.wav_frontend",
    "funasr.models.sense_voice.model",
    "funasr.models.fun_asr_nano.model",
    "funasr.models.llm_asr.adaptor",
    "funasr.tokenizer.whisper_tokenizer",
)
"""Modules that register the classes of the model; FunASR itself goes on without those that cannot be imported."""


def main(wanted: dict[str, Any]) -> None:
    for name in _CLASSES:
        importlib.import_module(name)
    if wanted["path"] == "vllm":
        engine = _vllm_path(wanted["model"], wanted["device"])
        timed = engine.ctc_decoder
        for words in (True, False):
            engine.ctc_decoder = timed if words else None
            _measure(wanted, lambda sounds, tokens: engine.generate(sounds, max_new_tokens=tokens), words=words)
    else:
        model = _torch_path(wanted["model"], wanted["device"])
        _measure(wanted, lambda sounds, tokens: _one_by_one(model, sounds, tokens), words=True)


def _vllm_path(directory: str, device: str) -> Any:
    from funasr.models.fun_asr_nano.inference_vllm import FunASRNanoVLLM

    place, dtype = ("cuda:0", "bf16") if device == "cuda" else (device, "fp32")
    # Half of the memory, as its servers take.
    engine = FunASRNanoVLLM.from_pretrained(directory, device=place, dtype=dtype, gpu_memory_utilization=0.5)
    plain = engine._compute_timestamps
    engine._compute_timestamps = lambda rows, lengths, _: plain(rows, lengths, _spoken(0.06 * int(lengths[0])))
    return engine


def _torch_path(directory: str, device: str) -> Any:
    from funasr import AutoModel

    place = "cuda:0" if device == "cuda" else device
    return AutoModel(model=directory, device=place, disable_update=True, disable_pbar=True)


def _one_by_one(model: Any, sounds: list[Any], tokens: int) -> list[dict[str, Any]]:
    """It takes one segment at a time where there is a CTC head."""
    import torch

    results = []
    for number, sound in enumerate(sounds):
        clip = torch.from_numpy(sound)
        results += model.generate(input=[clip], key=[str(number)], cache={}, hotwords=[], max_length=tokens)
    return results


def _measure(wanted: dict[str, Any], transcribe: Transcribe, *, words: bool) -> None:
    for seconds in wanted["seconds"]:
        tokens = round(TOKENS_A_SECOND * seconds)
        for count in wanted["clips"]:
            sounds = [clips.pcm(number, seconds).astype(np.float32) / 32768 for number in range(count)]
            transcribe(sounds[:1], tokens)
            walls, results = [], []
            for _ in range(wanted["runs"]):
                began = time.perf_counter()
                results = transcribe(sounds, tokens)
                walls.append(time.perf_counter() - began)
            timed = sum(len(result.get("timestamps", ())) for result in results)
            line = {"clips": count, "clip_seconds": seconds, "words": words, "walls": walls}
            print(json.dumps({**line, "tokens": tokens * count, "timed_words": timed}), flush=True)


def _spoken(seconds: float) -> str:
    """One label of the CTC head for each token of an answer; `bench/fixed_model.py` makes the same."""
    return "".join(chr(0x4E00 + 7 * number % 60) for number in range(max(1, round(TOKENS_A_SECOND * seconds))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
