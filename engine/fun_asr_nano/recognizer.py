"""The recogniser: segments of all calls share the encoder's batches, the language model and the alignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from audio.fbank import FRAME_SAMPLES
from audio.shared import Waveform
from audio.span import Span
from engine.fun_asr_nano.alignment import AlignmentJob
from engine.fun_asr_nano.batching import next_batch
from engine.fun_asr_nano.call import Call, Piece, Segment
from engine.fun_asr_nano.decoding import Completion, Decoder
from engine.fun_asr_nano.embedder import PromptEmbedder
from engine.fun_asr_nano.listening import Listener, Listening
from engine.fun_asr_nano.options import OptionRules, token_limit
from engine.fun_asr_nano.timing import Words, WordTimer
from engine.fun_asr_nano.waiting import FairQueue
from engine.fun_asr_nano.writing import Writer
from engine.recognition import Capabilities, Recognition
from engine.stage import Output

_ALIGNED_AT_ONCE = 32
_LISTENING_AHEAD = 2
_PATIENCE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Caps on a batch of the encoder: padded rows of 60 ms, and pieces."""

    rows: int
    pieces: int


class FunAsrNanoRecognizer:
    """A `Recognizer` made of the parts of Fun-ASR-Nano.

    A step starts an encoder batch if one is due, hands what the encoder has finished to the language model, moves that
    on by a token, and collects word times; none of these waits for another, so on a GPU they overlap.

    Args:
        decoder: nobody else uses it.
        timer: None where the checkpoint has no CTC part.
        longest_seconds: segments up to this length are taken, though shorter ones are better.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        rules: OptionRules,
        *,
        listener: Listener,
        embedder: PromptEmbedder,
        decoder: Decoder,
        writer: Writer,
        timer: WordTimer | None,
        limits: BatchLimits,
        longest_seconds: float,
    ) -> None:
        self.capabilities = capabilities
        self._rules = rules
        self._listener = listener
        self._embedder = embedder
        self.decoder = decoder
        self._writer = writer
        self._timer = timer
        self._limits = limits
        self._longest_seconds = longest_seconds
        # Some more than the decoder works on together, so that it never lacks the next; what is more would only fill
        # memory with embeddings.
        self._in_flight = decoder.capacity + max(1, decoder.capacity // 4)
        self._numbers = count()
        self._calls: dict[int, Call] = {}
        self._queue = FairQueue()
        self._listening: list[tuple[list[Piece], Listening]] = []
        self._running: dict[str, Piece] = {}
        self._written: list[Piece] = []
        self._aligning: tuple[list[Piece], Future[list[Words]]] | None = None
        self._outputs: list[Output] = []

    def describe(self) -> Mapping[str, Any]:
        return {"capabilities": self.capabilities}

    @property
    def busy(self) -> bool:
        return bool(self._calls or self._outputs)

    def submit(self, call_id: int, waveform: Waveform, request: Recognition) -> None:
        if call_id in self._calls:
            raise ValueError(f"the call {call_id} is still running")
        options = request.options
        prompt, language = self._rules.prompt(options), self._rules.language(options)
        clips = [self._cut(waveform, span) for span in request.spans]
        if not clips:
            self._outputs.append(Output(call_id))
            return
        call = Call(call_id, options, prompt, language, len(clips), self._rules.warnings(options))
        self._calls[call_id] = call
        for index, clip in enumerate(clips):
            self._queue.add(self._piece(Segment(call, index), 0.0, clip))

    def cancel(self, call_id: int) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        call.over = True
        self.decoder.abort(sorted(call.running))
        for key in call.running:
            del self._running[key]
        self._queue.drop(call_id)
        self._written = [piece for piece in self._written if piece.call is not call]
        self._outputs = [output for output in self._outputs if output.call_id != call_id]

    def step(self) -> Iterable[Output]:
        moved = self._collect_words()
        moved |= self._collect_heard()
        moved |= self._listen()
        if self._running:
            self._decode()
        elif not moved:
            self._wait()
        self._align()
        outputs, self._outputs = self._outputs, []
        return outputs

    def close(self) -> None:
        for call_id in list(self._calls):
            self.cancel(call_id)
        self._listening.clear()
        self._listener.close()
        if self._timer is not None:
            self._timer.close()
        self.decoder.close()

    def _cut(self, waveform: Waveform, span: Span) -> Waveform:
        if not 0.0 <= span.start <= span.end:
            raise ValueError(f"a segment from {span.start} to {span.end} s is impossible")
        clip = waveform[span.slice()]
        if self._listener.rows(len(clip)) > self._listener.max_rows:
            longest = self._longest_seconds
            raise ValueError(f"a segment of {span.duration:.3f} s is too long, {longest:g} s are allowed")
        return clip

    def _piece(self, segment: Segment, begin: float, audio: Waveform, depth: int = 0) -> Piece:
        rows = self._listener.rows(len(audio))
        return Piece(segment, begin, audio, rows, f"clip-{next(self._numbers)}", depth)

    def _listen(self) -> bool:
        """Start the next batch of the encoder: at once if it is idle, behind the running one only if it is full."""
        room = self._in_flight - len(self._running) - sum(len(pieces) for pieces, _ in self._listening)
        ahead = _LISTENING_AHEAD if self._queue.rows >= self._limits.rows else 1
        if not self._queue or room <= 0 or len(self._listening) >= ahead:
            return False
        due = self._queue.candidates(4 * self._limits.pieces)
        most = min(self._limits.pieces, room)
        chosen = next_batch([piece.rows for piece in due], max_rows=self._limits.rows, max_items=most)
        pieces = [due[index] for index in chosen]
        self._queue.take(pieces)
        audible = [piece for piece in pieces if self._is_audible(piece)]
        audible = [piece for piece in audible if not piece.call.over]
        if audible:
            timed = self._timer is not None and any(piece.call.options.word_timestamps for piece in audible)
            self._listening.append((audible, self._listener.start([piece.audio for piece in audible], ctc=timed)))
        return True

    def _is_audible(self, piece: Piece) -> bool:
        """Whether there is something to hear; a clip of less than a frame or of pure zeros says nothing."""
        energy = float(np.dot(piece.audio, piece.audio))
        if piece.call.over:
            return False
        if not np.isfinite(energy):
            self._fail(piece.call, ValueError("the waveform holds samples that are no numbers"))
            return False
        if energy > 0.0 and len(piece.audio) >= FRAME_SAMPLES:
            return True
        self._finish(piece, ())
        return False

    def _collect_heard(self) -> bool:
        """Give the language model what the encoder has finished."""
        if not self._listening or not self._listening[0][1].reached:
            return False
        pieces, listening = self._listening.pop(0)
        for piece, heard in zip(pieces, listening.heard(), strict=True):
            if piece.call.over:
                continue
            options = piece.call.options
            piece.hidden = heard.ctc if options.word_timestamps else None
            piece.limit = token_limit(piece.duration, options.max_new_tokens)
            try:
                prompt = self._embedder(piece.call.prompt, heard.embeddings)
                self.decoder.add(piece.key, prompt, max_new_tokens=piece.limit, temperature=options.temperature)
            except ValueError as error:
                self._fail(piece.call, error)
                continue
            self._running[piece.key] = piece
            piece.call.running.add(piece.key)
        return True

    def _decode(self) -> None:
        for completion in self.decoder.step():
            piece = self._running.pop(completion.key, None)
            if piece is not None:
                piece.call.running.discard(piece.key)
                self._take_text(piece, completion)

    def _take_text(self, piece: Piece, completion: Completion) -> None:
        if not self._writer.write(piece, completion):
            self._halve(piece)
        elif piece.text and piece.hidden is not None and self._timer is not None:
            self._written.append(piece)
        else:
            self._finish(piece, None if piece.text else ())

    def _halve(self, piece: Piece) -> None:
        piece.hidden = None
        piece.segment.open_pieces += 1
        for begin, audio in reversed(piece.halves()):
            self._queue.add_first(self._piece(piece.segment, begin, audio, piece.depth + 1))

    def _align(self) -> None:
        """Texts that are ready get word times together; those that come meanwhile make the next batch."""
        if self._aligning is not None or not self._written or self._timer is None:
            return
        pieces, self._written = self._written[:_ALIGNED_AT_ONCE], self._written[_ALIGNED_AT_ONCE:]
        jobs = [AlignmentJob(piece.hidden, piece.text) for piece in pieces if piece.hidden is not None]
        self._aligning = (pieces, self._timer.start(jobs))

    def _collect_words(self) -> bool:
        if self._aligning is None or not self._aligning[1].done():
            return False
        pieces, future = self._aligning
        self._aligning = None
        for piece, words in zip(pieces, future.result(), strict=True):
            if not piece.call.over:
                if words is None:
                    piece.warnings += ("word times of a segment are missing: its text does not fit its sound",)
                self._finish(piece, words)
        return True

    def _wait(self) -> None:
        """There is nothing to do but to wait for the device; neither takes long."""
        if self._aligning is not None:
            wait([self._aligning[1]], timeout=_PATIENCE_SECONDS)
        elif self._listening:
            self._listening[0][1].heard()

    def _finish(self, piece: Piece, words: Words) -> None:
        """A piece is done: put out its segment if it was the last one, and forget the call with its last segment."""
        piece.hidden = None
        segment, call = piece.segment, piece.call
        piece.words = words if self.capabilities.word_timestamps and call.options.word_timestamps else None
        segment.done.append(piece)
        segment.open_pieces -= 1
        if segment.open_pieces:
            return
        call.open_segments -= 1
        self._outputs.append(Output(call.id, segment.hypothesis(), last=call.open_segments == 0))
        if call.open_segments == 0:
            call.over = True
            del self._calls[call.id]

    def _fail(self, call: Call, error: Exception) -> None:
        self.cancel(call.id)
        self._outputs.append(Output(call.id, error=error))
