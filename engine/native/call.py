"""Book-keeping of the native recogniser: calls, their segments, and the pieces that segments are decoded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from audio.shared import Waveform
from audio.span import to_samples, to_seconds
from engine.recognition import DecodingOptions, FinishReason, Hypothesis, TokenLogprob, Word
from engine.repetition import compression_ratio

_NO_SPACE = frozenset({"zh", "ja", "yue", "th", "lo", "my", "km"})
_QUIET_WINDOW = to_samples(0.1)


@dataclass(slots=True)
class Piece:
    """A stretch of a segment that is decoded as one clip; a whole segment unless it had to be halved.

    `begin` is in seconds from the beginning of the segment. `key` names the clip inside the engine.
    """

    segment: Segment
    begin: float
    audio: Waveform
    key: str
    depth: int = 0
    states: Any = None
    text: str = ""
    tokens: tuple[int, ...] = ()
    words: tuple[Word, ...] | None = None
    finish_reason: FinishReason = "stop"
    logprob: float = 0.0
    steps: int = 0
    no_speech_prob: float | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def call(self) -> Call:
        return self.segment.call

    @property
    def duration(self) -> float:
        return to_seconds(len(self.audio))

    def halves(self) -> tuple[tuple[float, Waveform], tuple[float, Waveform]]:
        """Begin and audio of the two parts before and after the quietest point of its middle third."""
        cut = quietest_sample(self.audio)
        return (self.begin, self.audio[:cut]), (self.begin + to_seconds(cut), self.audio[cut:])

    def release(self) -> None:
        """Let go of the recording. A piece that is done and its segment know each other, and Python frees such rings
        only now and then, in a process with millions of objects hardly ever."""
        self.audio = self.audio[:0].copy()


@dataclass(slots=True)
class Segment:
    """A segment of a call: how many of its pieces are still out, and those that are done."""

    call: Call
    index: int
    open_pieces: int = 1
    done: list[Piece] = field(default_factory=list)

    def hypothesis(self) -> Hypothesis:
        """What the pieces say together."""
        pieces = sorted(self.done, key=lambda piece: piece.begin)
        said = [piece for piece in pieces if piece.text]
        text, words = _joined(said, self.call.language)
        steps = sum(piece.steps for piece in pieces)
        silence = [piece.no_speech_prob for piece in pieces if piece.no_speech_prob is not None]
        return Hypothesis(
            index=self.index,
            text=text,
            words=words,
            language=self.call.language,
            finish_reason="length" if any(piece.finish_reason == "length" for piece in pieces) else "stop",
            tokens=tuple(token for piece in said for token in piece.tokens),
            temperature=self.call.options.temperature,
            avg_logprob=sum(piece.logprob for piece in pieces) / steps if steps else None,
            no_speech_prob=min(silence) if silence else None,
            compression_ratio=compression_ratio(text) if text else None,
            logprobs=joined_logprobs([piece.logprobs for piece in said]) if self.call.options.logprobs else None,
            warnings=tuple(dict.fromkeys(warning for piece in pieces for warning in piece.warnings)),
        )


@dataclass(slots=True)
class Call:
    """A call that is not finished. `waiting` are pieces that cannot start before the language is known."""

    id: int
    options: DecodingOptions
    language: str | None
    open_segments: int
    running: set[str] = field(default_factory=set)
    waiting: list[Piece] = field(default_factory=list)


def _joined(pieces: Sequence[Piece], language: str | None) -> tuple[str, tuple[Word, ...] | None]:
    """Text and words of pieces one after the other; no words if one of the pieces has none."""
    text = ""
    words: list[Word] | None = []
    for piece in pieces:
        space = " " if text and language not in _NO_SPACE else ""
        text += space + piece.text
        if words is None or piece.words is None:
            words = None
            continue
        for number, word in enumerate(piece.words):
            moved = word.shifted(piece.begin)
            words.append(Word(space + moved.text, moved.start, moved.end, moved.interpolated) if not number else moved)
    return text, None if words is None else tuple(words)


def joined_logprobs(pieces: Sequence[tuple[TokenLogprob, ...] | None]) -> tuple[TokenLogprob, ...] | None:
    """Those of pieces one after the other; None if one of them has none."""
    known = [piece for piece in pieces if piece is not None]
    return tuple(token for piece in known for token in piece) if len(known) == len(pieces) else None


def quietest_sample(audio: Waveform) -> int:
    """Index of the middle of the quietest tenth of a second in the middle third of a waveform."""
    first, last = len(audio) // 3, len(audio) * 2 // 3
    window = max(1, min(_QUIET_WINDOW, last - first))
    power = np.concatenate(([0.0], np.cumsum(np.square(audio[first:last], dtype=np.float64))))
    energy = power[window:] - power[:-window]
    return first + int(np.argmin(energy)) + window // 2
