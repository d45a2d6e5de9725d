"""Fun-ASR-Nano with random weights, made to do the work that trained weights would: for measuring, never for serving.

Random weights write noise of any length, fall into loops, and no CTC head could align what they write. Here every
answer is as long as speech of that length would be, loops are left alone, and word times are made of a text of as many
labels as was answered tokens. Nothing else differs from what `tinglu serve` loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.catalog import ResolvedModel
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.decoding import VllmDecoder, build_engine
from engine.fun_asr_nano.languages import NANO, LanguageTable
from engine.fun_asr_nano.llm_weights import LlmCache
from engine.fun_asr_nano.load import assemble, warm_up
from engine.fun_asr_nano.placing import Lattice
from engine.fun_asr_nano.prompt import NanoTokenizer, PromptBuilder
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.fun_asr_nano.text import clean
from engine.fun_asr_nano.writing import TextRules
from engine.native.vllm_compat import Device
from engine.repetition import Loop

TOKENS_A_SECOND = 130 / 30
"""130 for 30 s, 20 for 4.7 s: what Fun-ASR-Nano writes for Chinese or English speech."""
_TOKENS_A_SOUND_TOKEN = 2.07
"""A prompt holds one embedding for 0.48 s of sound, rounded up: 63 for 30 s and 10 for 4.7 s, so 130 and 20 tokens."""
_FIRST_CHARACTER, _CHARACTERS = 0x4E00, 60
"""Characters that are one label each, in the published rank table as in the made ones."""


def tokens_for(seconds: float) -> int:
    """How many tokens a clip of so many seconds becomes."""
    return round(TOKENS_A_SECOND * seconds)


def spoken(labels: int) -> str:
    """A text of so many labels of the CTC head."""
    return "".join(chr(_FIRST_CHARACTER + 7 * number % _CHARACTERS) for number in range(labels))


class FixedLengthDecoder(VllmDecoder):
    """Answers as long as the sound in the prompt asks for, whatever is in them."""

    around = 0
    """Tokens of a prompt that are no sound."""

    def add(self, key: str, prompt: Tensor, *, max_new_tokens: int, temperature: float, logprobs: bool = False) -> None:
        sound = max(1, len(prompt) - self.around)
        self._fixed_tokens = max(1, int(_TOKENS_A_SOUND_TOKEN * sound))
        super().add(key, prompt, max_new_tokens=max_new_tokens, temperature=temperature, logprobs=logprobs)


class FixedLengthAligner(CtcAligner):
    """Aligns texts that fit the sound in place of those that random weights wrote."""

    def lattice(self, jobs: Sequence[AlignmentJob], *, probabilities: bool = False) -> Lattice:
        seconds = [len(job.hidden) * self._row_seconds for job in jobs]
        fitting = [spoken(max(1, tokens_for(length))) for length in seconds]
        replaced = [AlignmentJob(job.hidden, text) for job, text in zip(jobs, fitting, strict=True)]
        return super().lattice(replaced, probabilities=probabilities)


def text_rules() -> TextRules:
    """Texts are cleaned as ever and never empty; their loops are no reason to decode again."""
    return TextRules(clean=lambda text: clean(text) or "一", find_loop=_no_loop)


def load_fixed(model: ResolvedModel, kind: Device, cache_dir: Path, options: Mapping[str, Any]) -> FunAsrNanoRecognizer:
    """What `load_fun_asr_nano` loads, but for the lengths of its answers; takes the same arguments."""
    checkpoint = Checkpoint.open(model.directory)
    directory = LlmCache(cache_dir / "fun-asr-nano").extract(checkpoint)
    decoder = FixedLengthDecoder(build_engine(directory, kind, options), stop_ids=(), fixed_tokens=1)
    decoder.around = _plain_prompt_tokens(checkpoint)
    recognizer = assemble(
        model.name,
        checkpoint,
        decoder,
        device=kind,
        dtype=decoder.dtype,
        text_rules=text_rules(),
        aligner=FixedLengthAligner,
    )
    warm_up(recognizer, kind)
    return recognizer


def _plain_prompt_tokens(checkpoint: Checkpoint) -> int:
    """Tokens around the sound: 23 with the published tokenizer, more with one that was cut."""
    tokenizer = NanoTokenizer(checkpoint.paths.llm / "tokenizer.json", vocabulary=checkpoint.config.llm.vocabulary)
    builder = PromptBuilder(tokenizer, LanguageTable(NANO), max_tokens=checkpoint.config.llm.max_positions)
    prompt = builder.build(language=None, hotwords=(), itn=True)
    return len(prompt.prefix) + len(prompt.suffix)


def _no_loop(text: str, *, truncated: bool = False) -> Loop | None:
    return None
