"""Putting a native recogniser together from a model directory."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from audio.span import SAMPLE_RATE, Span
from engine.catalog import ResolvedModel
from engine.native import vllm_compat
from engine.native.alignment import Aligner
from engine.native.cross_attention import Decoder, SeparateDecoder, SharedDecoder
from engine.native.encoder_tap import EncoderTap
from engine.native.recognizer import NativeRecognizer
from engine.native.speech_model import ServedModel, SpeechModel
from engine.native.whisper import WhisperModel
from engine.recognition import DecodingOptions, Recognition

_log = logging.getLogger(__name__)

_ARCHITECTURE = "WhisperForConditionalGeneration"


def assemble(model: ResolvedModel, device: vllm_compat.Device, engine_options: Mapping[str, Any]) -> NativeRecognizer:
    """What `load_native` promises, once the environment is set."""
    began = time.perf_counter()
    engine = vllm_compat.build_engine(model.directory, device, engine_options)
    loaded = time.perf_counter()
    if _ARCHITECTURE in engine.model_config.architectures:
        recognizer = _load_whisper(WhisperModel(model.name, engine, model.directory), model.directory, engine, device)
    else:
        recognizer = _recognizer(engine, ServedModel(model.name, engine))
        _warm_up(recognizer)
    ready = time.perf_counter()
    _log.info("%s: vLLM loaded in %.1f s, warm after %.1f s more", model.name, loaded - began, ready - loaded)
    return recognizer


def _load_whisper(whisper: WhisperModel, directory: Path, engine: Any, device: str) -> NativeRecognizer:
    """Whisper with word times from the weights inside vLLM, or from a second copy where those are out of reach."""
    tap = EncoderTap.attach(engine)
    if tap is not None:
        try:
            recognizer = _recognizer(engine, whisper, SharedDecoder(tap.model, whisper.heads), tap)
            _warm_up(recognizer)
            return recognizer
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            _log.warning("vLLM's Whisper is not built as expected, a second copy makes the word times: %r", error)
    separate = SeparateDecoder(directory, whisper.heads, device, engine.model_config.dtype)
    recognizer = _recognizer(engine, whisper, separate)
    _warm_up(recognizer)
    return recognizer


def _recognizer(
    engine: Any, model: SpeechModel, decoder: Decoder | None = None, tap: EncoderTap | None = None
) -> NativeRecognizer:
    in_flight = 2 * engine.vllm_config.scheduler_config.max_num_seqs
    aligner = None
    if decoder is not None and isinstance(model, WhisperModel):
        aligner = Aligner(decoder, model.tokens.end, model.tokens.no_speech)
    return NativeRecognizer(engine, model, aligner=aligner, tap=tap, in_flight=in_flight)


def _warm_up(recognizer: NativeRecognizer) -> None:
    """One second of faint noise through everything, so that the first request is as fast as the next."""
    noise = np.random.default_rng(0).normal(0.0, 1e-3, SAMPLE_RATE).astype(np.float32)
    recognizer.submit(-1, noise, Recognition((Span(0.0, 1.0),), DecodingOptions(max_new_tokens=8)))
    try:
        while recognizer.busy:
            for output in recognizer.step():
                if output.error is not None:
                    raise output.error
                if recognizer.capabilities.word_timestamps and output.value.words is None:
                    raise LookupError("no encoder output was found")
    finally:
        recognizer.cancel(-1)
