"""Bfloat16 transcripts do not depend on who else is decoded: the tiny checkpoint alone and with 127 others, on a GPU.

Run by hand, `pytest -m gpu tests/gpu/test_batch_size.py -s`. The encoder's rows differ a little in a larger batch,
whose kernels sum in another order: how much is printed, `test_fun_asr_nano.py` bounds it, and here it must not reach
the text. The second test gives the language model the same prompts alone and together: where that fails, it is vLLM's
kernels, for which it has VLLM_BATCH_INVARIANT=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audio.shared import Waveform
from audio.span import Span
from engine.catalog import ResolvedModel
from engine.fun_asr_nano.acoustic import Heard
from engine.fun_asr_nano.load import load_fun_asr_nano
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.recognition import DecodingOptions, Recognition

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # what vLLM and its kernels say on a GPU is not ours to mend
    pytest.mark.timeout(900),
]

TESTS = Path(__file__).parents[1]
CLIPS = 128
NEW_TOKENS = 32


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunAsrNanoRecognizer]:
    model = ResolvedModel("fun-asr-nano", "fun_asr_nano", TESTS / "parity" / "nano-tiny")
    options = {"gpu_memory_utilization": 0.1, "dtype": "bfloat16"}
    loaded = load_fun_asr_nano(model, "cuda", tmp_path_factory.mktemp("cache"), options)
    print(f"VLLM_BATCH_INVARIANT={os.environ.get('VLLM_BATCH_INVARIANT')}")
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def clips() -> list[Waveform]:
    """Recordings of people, 0.5 s to 30 s, no two alike."""
    names = ("jfk", "nano-29.7s", "nano-3.1s")
    sound = np.concatenate([soundfile.read(TESTS / "data" / f"{name}.wav", dtype="float32")[0] for name in names])
    rng = np.random.default_rng(0)
    lengths = (rng.uniform(0.5, 30.0, CLIPS) * 16000).astype(int)
    return [np.ascontiguousarray(np.roll(sound, -5000 * number)[:length]) for number, length in enumerate(lengths)]


def transcripts(recognizer: FunAsrNanoRecognizer, clips: Sequence[Waveform]) -> list[tuple[int, ...]]:
    """The tokens of clips that are all there at once."""
    options = DecodingOptions(max_new_tokens=NEW_TOKENS, word_timestamps=False)
    for call, clip in enumerate(clips):
        recognizer.submit(call, clip, Recognition((Span(0.0, len(clip) / 16000),), options))
    found: dict[int, tuple[int, ...]] = {}
    while recognizer.busy:
        for output in recognizer.step():
            assert output.error is None
            found[output.call_id] = output.value.tokens
    return [found[call] for call in range(len(clips))]


def heard(recognizer: FunAsrNanoRecognizer, clips: Sequence[Waveform]) -> Sequence[Heard]:
    return recognizer._listener.start(list(clips), ctc=True).heard()


def encoder_drift(recognizer: FunAsrNanoRecognizer, clips: Sequence[Waveform]) -> float:
    """The largest relative difference of a clip's embeddings alone and in a batch."""
    pairs = zip(heard(recognizer, clips), (heard(recognizer, [clip])[0] for clip in clips), strict=True)
    errors = [(a.embeddings.float() - b.embeddings.float()).norm() / b.embeddings.float().norm() for a, b in pairs]
    return float(max(errors))


def decoded(recognizer: FunAsrNanoRecognizer, prompts: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
    for number, prompt in enumerate(prompts):
        recognizer.decoder.add(f"test-{number}", prompt, max_new_tokens=NEW_TOKENS, temperature=0.0)
    found: dict[str, tuple[int, ...]] = {}
    while len(found) < len(prompts):
        found |= {completion.key: completion.ids for completion in recognizer.decoder.step()}
    return [found[f"test-{number}"] for number in range(len(prompts))]


def differing(ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """The clips whose tokens differ, with the place of the first that does."""
    pairs = enumerate(zip(ours, theirs, strict=True))
    return {
        clip: next((at for at, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), min(map(len, pair)))
        for clip, pair in pairs
        if pair[0] != pair[1]
    }


def test_transcripts(recognizer: FunAsrNanoRecognizer, clips: list[Waveform]) -> None:
    together = transcripts(recognizer, clips)
    alone = [transcripts(recognizer, [clip])[0] for clip in clips]
    print(f"the encoder alone and in a batch of 32 differ by {encoder_drift(recognizer, clips[:32]):.1e} of its rms")
    assert differing(alone, together) == {}


def test_what_the_language_model_writes(recognizer: FunAsrNanoRecognizer, clips: list[Waveform]) -> None:
    prompt = recognizer._rules.prompt(DecodingOptions())
    prompts = [
        recognizer._embedder(prompt, item.embeddings.clone())
        for begin in range(0, CLIPS, 32)
        for item in heard(recognizer, clips[begin : begin + 32])
    ]
    together = decoded(recognizer, prompts)
    alone = [decoded(recognizer, [prompt])[0] for prompt in prompts]
    assert differing(alone, together) == {}
