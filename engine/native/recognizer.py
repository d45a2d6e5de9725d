"""The recogniser for every model that vLLM serves itself: all segments of all calls are in one engine together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from audio.shared import Waveform
from audio.span import Span
from engine.native import vllm_compat
from engine.native.alignment import Aligner, Utterance
from engine.native.call import Call, Piece, Segment
from engine.native.encoder_tap import EncoderTap
from engine.native.engine_stats import EngineStats
from engine.native.pauses import snap_to_speech
from engine.native.speech_model import EngineRequest, SpeechModel
from engine.native.waiting import FairQueue
from engine.native.whisper import WhisperModel
from engine.recognition import Capabilities, Recognition
from engine.repetition import compression_ratio, cut_loops, find_loop
from engine.stage import Output
from engine.tally import Tally

_PREPARED_A_STEP = 4
"""Clips whose features are computed in one step: 10 ms each."""
_ALIGNED_A_STEP = 8
_ALIGNMENT_PATIENCE = 4
"""Steps of the engine that a finished clip waits at most for others to be aligned with."""
_MIN_SAMPLES = 160
"""A clip shorter than one feature frame, 10 ms, says nothing."""
_TELLING_SECONDS = 2.0
"""Speech this long lets a language be told."""
_SHORTEST_HALVED = 4.0
_DEEPEST = 3
_MAX_COMPRESSION_RATIO = 2.4
"""Above it Whisper's authors hold a text for a loop (arXiv 2212.04356, section 4.5)."""
_SILENT, _UNSURE = 0.6, -1.0
"""Above the one and below the other, Whisper heard no speech (arXiv 2212.04356, section 4.5)."""


class NativeRecognizer:
    """A `Recognizer` over an in-process vLLM engine.

    Args:
        engine: an `LLMEngine` that nobody else uses.
        model: how to prompt and read the model in it.
        aligner: makes word times; only for `WhisperModel`.
        tap: hands out encoder outputs, so that clips are encoded once; without it the aligner has its own encoder.
        in_flight: the most clips that are inside the engine at a time, running or waiting.
    """

    def __init__(
        self, engine: Any, model: SpeechModel, *, aligner: Aligner | None, tap: EncoderTap | None, in_flight: int
    ) -> None:
        self._engine = engine
        self._model = model
        self._aligner = aligner if isinstance(model, WhisperModel) else None
        self._tap = tap
        self._in_flight = in_flight
        self._numbers = count()
        self._calls: dict[int, Call] = {}
        self._queue = FairQueue()
        self._running: dict[str, Piece] = {}
        self._decoded: list[Piece] = []
        self._patience = 0
        self._outputs: list[Output] = []
        self._stats = EngineStats(engine)
        self._tally = Tally()
        if tap is not None:
            tap.encoded = self._tally.encoded

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    @property
    def counters(self) -> Mapping[str, float]:
        return self._tally.counters | self._stats.counters

    @property
    def gauges(self) -> Mapping[str, float]:
        return {"waiting_clips": len(self._queue), **self._stats.gauges}

    def describe(self) -> Mapping[str, Any]:
        return {"capabilities": self.capabilities}

    @property
    def busy(self) -> bool:
        return bool(self._calls or self._outputs)

    def submit(self, call_id: int, waveform: Waveform, request: Recognition) -> None:
        if call_id in self._calls:
            raise ValueError(f"the call {call_id} is still running")
        self._model.check(request.options)
        clips = [self._cut(waveform, span) for span in request.spans]
        call = Call(call_id, request.options, request.options.language, len(clips))
        pieces = [self._piece(Segment(call, index), 0.0, clip) for index, clip in enumerate(clips)]
        if not pieces:
            self._outputs.append(Output(call_id))
            return
        self._calls[call_id] = call
        if call.language is None and len(self.capabilities.languages) == 1:
            call.language = self.capabilities.languages[0]
        if call.language is None and self.capabilities.detects_language:
            self._queue.add([_most_telling(pieces)])
            call.waiting = pieces
        else:
            self._queue.add(pieces)

    def cancel(self, call_id: int) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        if call.running:
            self._engine.abort_request(sorted(call.running))
        for request_id in call.running:
            del self._running[request_id]
        self._queue.drop(call_id)
        self._decoded = [piece for piece in self._decoded if piece.call is not call]
        self._outputs = [output for output in self._outputs if output.call_id != call_id]

    def step(self) -> Iterable[Output]:
        if self._queue and len(self._running) < self._in_flight:
            with self._tally.timed("prepare_seconds"):
                self._prepare()
        elif self._decoded and (not self._running or self._patience <= 0 or len(self._decoded) >= _ALIGNED_A_STEP):
            with self._tally.timed("align_seconds"):
                self._align()
        elif self._running:
            with self._tally.timed("llm_seconds"):
                self._decode()
        outputs, self._outputs = self._outputs, []
        return outputs

    def close(self) -> None:
        for call_id in list(self._calls):
            self.cancel(call_id)
        vllm_compat.close_engine(self._engine)

    def _cut(self, waveform: Waveform, span: Span) -> Waveform:
        if not 0.0 <= span.start <= span.end:
            raise ValueError(f"a segment from {span.start} to {span.end} s is impossible")
        clip = waveform[span.slice()]
        if span.duration > self.capabilities.max_segment_seconds + 1e-6:
            longest = self.capabilities.max_segment_seconds
            raise ValueError(f"a segment of {span.duration:.3f} s is too long, {longest:g} s are allowed")
        return clip

    def _piece(self, segment: Segment, begin: float, audio: Waveform, depth: int = 0) -> Piece:
        return Piece(segment, begin, audio, f"clip-{next(self._numbers)}", depth)

    def _prepare(self) -> None:
        """Give the next few clips to the engine; their features are computed on the way."""
        for _ in range(min(_PREPARED_A_STEP, self._in_flight - len(self._running))):
            if not self._queue:
                return
            piece = self._queue.take()
            if len(piece.audio) < _MIN_SAMPLES:
                self._skip(piece)
                continue
            try:
                self._start(piece)
            except ValueError as error:
                self._fail(piece.call, error)

    def _start(self, piece: Piece) -> None:
        if not np.isfinite(piece.audio).all():
            raise ValueError("the waveform holds samples that are no numbers")
        request = self._request(piece)
        request_id = f"{piece.key}-{next(self._numbers)}"
        vllm_compat.add_request(self._engine, request_id, request.prompt, request.params)
        self._running[request_id] = piece
        self._tally.counters["clips"] += 1
        piece.call.running.add(request_id)

    def _request(self, piece: Piece) -> EngineRequest:
        call = piece.call
        if call.waiting:
            return self._model.detection(piece.audio, piece.key)
        return self._model.transcription(piece.audio, piece.key, call.language, call.options)

    def _decode(self) -> None:
        results = self._engine.step()
        self._patience -= 1
        if self._tap is not None:
            fresh = {piece.key: piece for piece in self._running.values() if piece.states is None}
            for key, states in self._tap.outputs(fresh).items():
                fresh[key].states = states
        for result in results:
            if result.finished and (piece := self._running.pop(result.request_id, None)) is not None:
                piece.call.running.discard(result.request_id)
                if piece.call.waiting:
                    self._detected(piece, result.outputs[0])
                else:
                    self._finished(piece, result.outputs[0])

    def _detected(self, piece: Piece, completion: Any) -> None:
        piece.call.language = self._model.detected(tuple(completion.token_ids))
        self._release(piece.call)

    def _release(self, call: Call) -> None:
        pieces, call.waiting = call.waiting, []
        self._queue.add(pieces)

    def _finished(self, piece: Piece, completion: Any) -> None:
        reading = self._model.read(completion)
        piece.text, piece.tokens = reading.text, reading.tokens
        piece.finish_reason = "length" if completion.finish_reason == "length" else "stop"
        piece.logprob, piece.steps = completion.cumulative_logprob or 0.0, len(completion.token_ids)
        if piece.call.options.logprobs and isinstance(self._model, WhisperModel):
            piece.logprobs = self._model.logprobs(completion)
        wanted = piece.finish_reason == "length" and piece.call.options.max_new_tokens is not None
        if (piece.finish_reason == "length" and not wanted) or _is_suspicious(piece):
            if piece.duration >= _SHORTEST_HALVED and piece.depth < _DEEPEST:
                self._halve(piece)
                return
            self._cut_loops(piece)
        if piece.finish_reason == "length":
            limit = "max_new_tokens" if wanted else "the model's limit"
            piece.warnings += (f"the text of a segment ends at {limit} and may be incomplete",)
        if not self._can_align(piece):
            self._close(piece)
            return
        if not self._decoded:
            self._patience = _ALIGNMENT_PATIENCE
        self._decoded.append(piece)

    def _can_align(self, piece: Piece) -> bool:
        if self._aligner is None:
            return False
        if piece.states is not None:
            return True
        if not piece.call.options.word_timestamps:
            # Only the check for silence is left, which is not worth encoding the clip again.
            return False
        if self._tap is not None:
            piece.warnings += ("word times of a segment are missing: its encoder output was lost",)
        return self._tap is None

    def _halve(self, piece: Piece) -> None:
        piece.segment.open_pieces += 1
        halves = [self._piece(piece.segment, *half, piece.depth + 1) for half in piece.halves()]
        self._queue.add_first(halves)

    def _cut_loops(self, piece: Piece) -> None:
        truncated = piece.finish_reason == "length"
        if find_loop(piece.text, truncated=truncated) is None:
            if not truncated:
                piece.warnings += ("the text of a segment repeats itself",)
            return
        piece.text = cut_loops(piece.text, truncated=truncated).strip()
        if isinstance(self._model, WhisperModel):
            piece.tokens = self._model.encode(piece.text)
            piece.logprobs = None
        piece.warnings += ("the model fell into a loop; one copy of what it repeated was kept",)

    def _align(self) -> None:
        pieces, self._decoded = self._decoded[:_ALIGNED_A_STEP], self._decoded[_ALIGNED_A_STEP:]
        self._patience = _ALIGNMENT_PATIENCE
        model, aligner = self._model, self._aligner
        assert isinstance(model, WhisperModel)
        assert aligner is not None
        for piece, alignment in zip(pieces, aligner.align([_utterance(model, p) for p in pieces]), strict=True):
            piece.no_speech_prob = alignment.no_speech_prob
            if alignment.no_speech_prob > _SILENT and piece.logprob < _UNSURE * piece.steps:
                piece.text, piece.tokens = "", ()
            if piece.call.options.word_timestamps:
                words = model.words(piece.tokens, alignment.boundaries.tolist()) if piece.text else []
                piece.words = snap_to_speech(words, piece.audio)
            self._close(piece)

    def _skip(self, piece: Piece) -> None:
        if piece.call.waiting:
            # The clip for the language is the longest, so there is nothing to hear in the others either.
            self._release(piece.call)
            return
        piece.words = () if self.capabilities.word_timestamps and piece.call.options.word_timestamps else None
        self._close(piece)

    def _close(self, piece: Piece) -> None:
        """A piece is done: put out its segment if it was the last one, and forget the call with its last segment."""
        piece.states = None
        segment, call = piece.segment, piece.call
        piece.release()
        segment.done.append(piece)
        segment.open_pieces -= 1
        if segment.open_pieces == 0:
            call.open_segments -= 1
            self._outputs.append(Output(call.id, segment.hypothesis(), last=call.open_segments == 0))
        if call.open_segments == 0:
            del self._calls[call.id]

    def _fail(self, call: Call, error: Exception) -> None:
        self.cancel(call.id)
        self._outputs.append(Output(call.id, error=error))


def _most_telling(pieces: Sequence[Piece]) -> Piece:
    """The clip to detect a language from: the first with enough speech, or the longest."""
    enough = (piece for piece in pieces if piece.duration >= _TELLING_SECONDS)
    return next(enough, None) or max(pieces, key=lambda piece: len(piece.audio))


def _is_suspicious(piece: Piece) -> bool:
    """Whether the text looks like a loop of the decoder and shorter audio is worth a try."""
    looping = find_loop(piece.text, truncated=piece.finish_reason == "length") is not None
    return looping or compression_ratio(piece.text) > _MAX_COMPRESSION_RATIO


def _utterance(model: WhisperModel, piece: Piece) -> Utterance:
    prompt = model.tokens.prompt(piece.call.language, piece.call.options.task)
    text = piece.tokens if piece.call.options.word_timestamps else ()
    return Utterance(piece.audio, prompt, text, piece.states)
