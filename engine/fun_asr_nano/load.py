"""Putting Fun-ASR-Nano together from a published model directory."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from audio.span import Span, to_samples
from engine.catalog import ResolvedModel
from engine.fun_asr_nano.acoustic import AcousticModel
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.config import CtcConfig, NanoConfig
from engine.fun_asr_nano.decoding import Decoder, VllmDecoder, build_engine
from engine.fun_asr_nano.embedder import PromptEmbedder
from engine.fun_asr_nano.errors import TensorMismatch
from engine.fun_asr_nano.frontend import Frontend
from engine.fun_asr_nano.graphs import batch_shapes
from engine.fun_asr_nano.languages import MLT_NANO, NANO, LanguageTable
from engine.fun_asr_nano.listening import Listener
from engine.fun_asr_nano.llm_weights import LlmCache
from engine.fun_asr_nano.options import OptionRules, token_limit
from engine.fun_asr_nano.prompt import NanoTokenizer, PromptBuilder
from engine.fun_asr_nano.recognizer import BatchLimits, FunAsrNanoRecognizer
from engine.fun_asr_nano.timing import WordTimer
from engine.fun_asr_nano.word_processes import WordProcesses
from engine.fun_asr_nano.writing import TextRules, Writer
from engine.native.vllm_compat import Device, configure_environment
from engine.recognition import Capabilities, DecodingOptions, Recognition

_log = logging.getLogger(__name__)

_SEGMENT_SECONDS = 30.0
"""What the model should be given at most: from longer segments it leaves out passages (FunASR issue 3419)."""
_LONGEST_SECONDS = 60.0
"""What it takes when it has to; a cut at 60 s by the compatible voice activity detection may be 10 ms late."""
_LATE_CUT_SECONDS = 0.05
_LIMITS: Mapping[Device, BatchLimits] = {
    # A step of the loop must end soon: 1,024 rows are a minute of sound.
    "cpu": BatchLimits(rows=1024, pieces=16),
    # About 40 ms of an H200; twice as much is 4 % more efficient and makes everybody wait twice as long. Six
    # milliseconds are two or three steps of the language model.
    "cuda": BatchLimits(rows=16384, pieces=128, crowd=48, patience_seconds=0.006, steps_between=8),
}
_WARM_UP_SECONDS: Mapping[Device, tuple[float, ...]] = {"cpu": (1.0,), "cuda": (1.0, 5.0, 30.0)}
_WARM_UP_ROWS = 8
_WORD_PROCESSES: Mapping[Device, int] = {"cpu": 0, "cuda": 2}
"""On a CPU they would take the cores that the models need."""
_PLAIN_PROMPT_TOKENS = 64
"""Enough for any prompt without hotwords."""


def load_fun_asr_nano(
    model: ResolvedModel,
    device: Device,
    cache_dir: Path,
    engine_options: Mapping[str, Any] | None = None,
    *,
    fixed_tokens: int | None = None,
) -> FunAsrNanoRecognizer:
    """Load a model of the family `fun_asr_nano`, its language model into vLLM in this process; warm.

    Args:
        cache_dir: where the language model is extracted to, once.
        engine_options: arguments of vLLM's `EngineArgs` that override ours.
        fixed_tokens: for measuring with random weights: the length of every text, whatever is in it.

    Raises:
        CheckpointError: the model directory or the cache cannot be used; one line that says why.
        ValueError: options that do not go together.
        ImportError: vLLM is not installed.
    """
    began = time.perf_counter()
    configure_environment(device)
    checkpoint = Checkpoint.open(model.directory)
    cache = LlmCache(cache_dir / "fun-asr-nano")
    directory = cache.extract(checkpoint)
    tokenizer = _tokenizer(checkpoint)
    engine = build_engine(directory, device, engine_options or {})
    decoder = VllmDecoder(engine, stop_ids=tokenizer.stop_ids, fixed_tokens=fixed_tokens)
    recognizer = assemble(model.name, checkpoint, decoder, device=device, dtype=decoder.dtype)
    loaded = time.perf_counter()
    warm_up(recognizer, device)
    _log.info(
        "%s, sha256 %s, word times %s: loaded in %.1f s, warm after %.1f s more",
        model.name,
        cache.checksum(checkpoint.paths.weights),
        "on" if recognizer.capabilities.word_timestamps else "off",
        loaded - began,
        time.perf_counter() - loaded,
    )
    return recognizer


def assemble(
    name: str,
    checkpoint: Checkpoint,
    decoder: Decoder,
    *,
    device: Device,
    dtype: torch.dtype,
    text_rules: TextRules | None = None,
    aligner: type[CtcAligner] = CtcAligner,
) -> FunAsrNanoRecognizer:
    """A recogniser over a decoder that has the language model of a checkpoint.

    Args:
        name: of the model; with "mlt" in it, it is the one for 31 languages, which nothing else tells.
        dtype: what the decoder computes in. On a GPU the encoder does too, on a CPU it computes in float32.
        text_rules, aligner: what makes the text and its word times, if not our own.

    Raises:
        TensorMismatch: the decoder has another language model.
        ValueError: its context is too short.
    """
    config = checkpoint.config
    if decoder.width != config.llm.hidden:
        raise TensorMismatch(f"the engine's embeddings are {decoder.width} wide, the checkpoint's {config.llm.hidden}")
    if checkpoint.ctc_missing is not None:
        _log.warning("%s gives no word times: %s", name, checkpoint.ctc_missing)
    frontend = Frontend(config.frontend, device=device)
    max_rows = frontend.rows(to_samples(_LONGEST_SECONDS + _LATE_CUT_SECONDS))
    acoustic = AcousticModel.load(
        checkpoint, max_rows=max_rows, dtype=torch.float32 if device == "cpu" else dtype, device=device
    )
    if device == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every length, which takes longer than attending
        acoustic.record(batch_shapes(_LIMITS[device].rows))
    languages = LanguageTable(MLT_NANO if "mlt" in name.casefold() else NANO)
    tokenizer = _tokenizer(checkpoint)
    builder = PromptBuilder(tokenizer, languages, max_tokens=_room_for_prompt(config, decoder.context, max_rows))
    timer = _word_timer(checkpoint, acoustic, device, aligner)
    return FunAsrNanoRecognizer(
        Capabilities(
            model=name,
            max_segment_seconds=_SEGMENT_SECONDS,
            languages=languages.codes,
            word_timestamps=timer is not None,
            logprobs=True,
            hotwords=True,
            translation=False,
            detects_language=False,
        ),
        OptionRules(builder, languages),
        listener=Listener(frontend, acoustic, dtype=dtype, device=device),
        embedder=PromptEmbedder(checkpoint.embeddings(dtype=dtype)),
        decoder=decoder,
        writer=Writer(tokenizer, text_rules or TextRules()),
        timer=timer,
        limits=_LIMITS[device],
        longest_seconds=_LONGEST_SECONDS,
    )


def warm_up(recognizer: FunAsrNanoRecognizer, device: Device) -> None:
    """Faint noise through everything, so that the first request is as fast as the next."""
    seconds = _WARM_UP_SECONDS[device]
    noise = np.random.default_rng(0).normal(0.0, 1e-3, to_samples(max(seconds))).astype(np.float32)
    spans = tuple(Span(0.0, length) for length in seconds)
    recognizer.submit(-1, noise, Recognition(spans, DecodingOptions(max_new_tokens=8)))
    while recognizer.busy:
        for output in recognizer.step():
            if output.error is not None:
                raise output.error
    if device == "cuda":
        # What is loaded stays: a full collection over all of it would stop everybody for a tenth of a second.
        gc.collect()
        gc.freeze()


def _tokenizer(checkpoint: Checkpoint) -> NanoTokenizer:
    return NanoTokenizer(checkpoint.paths.llm / "tokenizer.json", vocabulary=checkpoint.config.llm.vocabulary)


def _room_for_prompt(config: NanoConfig, context: int, max_rows: int) -> int:
    """What the context leaves for the prompt beside the longest segment and its longest text."""
    taken = config.audio_tokens(max_rows) + token_limit(_LONGEST_SECONDS + _LATE_CUT_SECONDS)
    if context - taken < _PLAIN_PROMPT_TOKENS:
        raise ValueError(f"max_model_len is {context}, at least {taken + _PLAIN_PROMPT_TOKENS} are needed")
    return context - taken


def _word_timer(
    checkpoint: Checkpoint, acoustic: AcousticModel, device: Device, aligner: type[CtcAligner]
) -> WordTimer | None:
    """What makes word times, warm: its loop is compiled now. None where the checkpoint has no CTC part."""
    head, tokenizer, config = acoustic.ctc, checkpoint.ctc_tokenizer, checkpoint.config
    if head is None or tokenizer is None or not isinstance(config.ctc, CtcConfig):
        return None
    own = aligner(head, tokenizer, row_seconds=config.frontend.row_seconds)
    processes = WordProcesses(own.placer, count) if (count := _WORD_PROCESSES[device]) else None
    timer = WordTimer(own, device=device, processes=processes)
    rows = head.ctc.ctc_lo.weight.new_zeros(_WARM_UP_ROWS, config.ctc.decoder.dim)
    for warming in [timer.start([AlignmentJob(rows, "a")]) for _ in range(timer.capacity)]:
        warming.result()
    return timer
