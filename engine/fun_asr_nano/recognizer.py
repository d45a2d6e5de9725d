"""The recogniser: segments of all calls share the encoder's batches, the language model and the alignment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from audio.fbank import FRAME_SAMPLES
from audio.shared import Waveform
from audio.span import Span
from engine.fun_asr_nano.acoustic import Heard
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
from engine.stage import Counting, Gauging, Output
from engine.tally import Tally

_ALIGNED_AT_ONCE = 32
_LISTENING_AHEAD = 2
_PATIENCE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Caps on a batch of the encoder: padded rows of 60 ms, and pieces.

    While the language model has at least `crowd` pieces to go on with, a batch below a quarter of its rows waits up to
    `patience_seconds` for more: it would take the GPU as long as a larger one, and the language model a step to begin.

    New pieces join the language model in one step of `steps_between`, unless it stands still: such a step runs outside
    of vLLM's recorded graphs and takes two to three times as long as one that only goes on.
    """

    rows: int
    pieces: int
    crowd: int = 0
    patience_seconds: float = 0.0
    steps_between: int = 1


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
        self._listening: list[tuple[list[Piece], Listening, float]] = []
        self._heard: list[tuple[Piece, Heard]] = []
        self._running: dict[str, Piece] = {}
        self._steps = 0
        self._written: list[Piece] = []
        self._aligning: list[tuple[list[Piece], Future[Sequence[Words]], float]] = []
        self._outputs: list[Output] = []
        self._tally = Tally()
        self._heard_at = self._aligned_at = 0.0
        self._gathering_since: float | None = None

    @property
    def counters(self) -> Mapping[str, float]:
        return {**self._tally.counters, **(self.decoder.counters if isinstance(self.decoder, Counting) else {})}

    @property
    def gauges(self) -> Mapping[str, float]:
        own = {"waiting_clips": len(self._queue)}
        return {**own, **(self.decoder.gauges if isinstance(self.decoder, Gauging) else {})}

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
        self._heard = [(piece, heard) for piece, heard in self._heard if piece.call is not call]
        self._written = [piece for piece in self._written if piece.call is not call]
        self._outputs = [output for output in self._outputs if output.call_id != call_id]

    def step(self) -> Iterable[Output]:
        moved = self._collect_words()
        moved |= self._collect_heard()
        moved |= self._admit()
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
        self._heard.clear()
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
        on_their_way = len(self._heard) + sum(len(pieces) for pieces, *_ in self._listening)
        room = self._in_flight - len(self._running) - on_their_way
        ahead = _LISTENING_AHEAD if self._queue.rows >= self._limits.rows else 1
        if not self._queue or room <= 0 or len(self._listening) >= ahead or self._gathers():
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
            began = time.perf_counter()
            listening = self._listener.start([piece.audio for piece in audible], ctc=timed)
            self._listening.append((audible, listening, began))
        return True

    def _gathers(self) -> bool:
        """Whether the next batch should wait for more pieces."""
        now = time.perf_counter()
        if self._gathering_since is None:
            self._gathering_since = now
        patient = now - self._gathering_since < self._limits.patience_seconds
        if patient and len(self._running) >= self._limits.crowd and self._queue.rows < self._limits.rows // 4:
            return True
        self._gathering_since = None
        return False

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
        """Take what the encoder has finished."""
        if not self._listening or not self._listening[0][1].reached:
            return False
        pieces, listening, began = self._listening.pop(0)
        now = time.perf_counter()
        # A batch that was started behind another one begins when that is done.
        self._tally.encoded(len(pieces), now - max(began, self._heard_at))
        self._heard_at = now
        self._heard += zip(pieces, listening.heard(), strict=True)
        return True

    def _admit(self) -> bool:
        """Give the language model what was heard."""
        if not self._heard or (self._running and self._steps < self._limits.steps_between):
            return False
        self._steps = 0
        waiting, self._heard = self._heard, []
        for piece, heard in waiting:
            if piece.call.over:
                continue
            options = piece.call.options
            piece.hidden = heard.ctc if options.word_timestamps else None
            piece.limit = token_limit(piece.duration, options.max_new_tokens)
            try:
                prompt = self._embedder(piece.call.prompt, heard.embeddings)
                self.decoder.add(
                    piece.key,
                    prompt,
                    max_new_tokens=piece.limit,
                    temperature=options.temperature,
                    logprobs=options.logprobs,
                )
            except ValueError as error:
                self._fail(piece.call, error)
                continue
            self._running[piece.key] = piece
            self._tally.counters["clips"] += 1
            piece.call.running.add(piece.key)
        return True

    def _decode(self) -> None:
        self._steps += 1
        with self._tally.timed("llm_seconds"):
            completions = self.decoder.step()
        for completion in completions:
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
        if not self._written or self._timer is None or len(self._aligning) >= self._timer.capacity:
            return
        pieces, self._written = self._written[:_ALIGNED_AT_ONCE], self._written[_ALIGNED_AT_ONCE:]
        jobs = [AlignmentJob(piece.hidden, piece.text) for piece in pieces if piece.hidden is not None]
        self._aligning.append((pieces, self._timer.start(jobs), time.perf_counter()))

    def _collect_words(self) -> bool:
        done = [batch for batch in self._aligning if batch[1].done()]
        self._aligning = [batch for batch in self._aligning if batch not in done]
        for batch in done:
            self._give_words(*batch)
        return bool(done)

    def _give_words(self, pieces: list[Piece], future: Future[Sequence[Words]], began: float) -> None:
        now = time.perf_counter()
        self._tally.counters["align_seconds"] += now - max(began, self._aligned_at)
        self._aligned_at = now
        for piece, words in zip(pieces, future.result(), strict=True):
            if not piece.call.over:
                if words is None:
                    piece.warnings += ("word times of a segment are missing: its text does not fit its sound",)
                self._finish(piece, words)

    def _wait(self) -> None:
        """There is nothing to do but to wait for the device; neither takes long."""
        if self._aligning:
            wait([future for _, future, _ in self._aligning], _PATIENCE_SECONDS, FIRST_COMPLETED)
        elif self._listening:
            self._listening[0][1].heard()

    def _finish(self, piece: Piece, words: Words) -> None:
        """A piece is done: put out its segment if it was the last one, and forget the call with its last segment."""
        piece.hidden = None
        segment, call = piece.segment, piece.call
        piece.release()
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
