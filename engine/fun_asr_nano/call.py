"""Book-keeping of the recogniser: calls, their segments, and the pieces that segments are decoded in."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audio.shared import Waveform
from audio.span import to_seconds
from engine.fun_asr_nano.prompt import Prompt
from engine.native.call import joined_logprobs, quietest_sample
from engine.recognition import DecodingOptions, FinishReason, Hypothesis, TokenLogprob, Word
from engine.repetition import compression_ratio

if TYPE_CHECKING:
    from torch import Tensor

_UNSPACED_SCRIPTS = ("THAI", "LAO", "MYANMAR", "KHMER")


@dataclass(slots=True, eq=False)
class Piece:
    """A stretch of a segment that is decoded at once; a whole segment unless it had to be halved.

    `begin` is in seconds from the beginning of the segment; `rows` are those of the encoder; `key` is its name in the
    decoder; `hidden` are its CTC rows from when it is encoded until its words have times. `logprob` is the sum over all
    `steps` of the decoder, where it was asked for.
    """

    segment: Segment
    begin: float
    audio: Waveform
    rows: int
    key: str
    depth: int = 0
    limit: int = 0
    hidden: Tensor | None = None
    text: str = ""
    tokens: tuple[int, ...] = ()
    words: Sequence[Word] | None = None
    finish_reason: FinishReason = "stop"
    logprobs: tuple[TokenLogprob, ...] | None = None
    logprob: float = 0.0
    steps: int = 0
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


@dataclass(slots=True, eq=False)
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
        text, words = _joined(said)
        if not said and all(piece.words is not None for piece in pieces):
            words = ()
        elif not said:
            words = None
        steps = sum(piece.steps for piece in pieces)
        warnings = [warning for piece in pieces for warning in piece.warnings]
        if self.index == 0:
            warnings = [*self.call.warnings, *warnings]
        return Hypothesis(
            index=self.index,
            text=text,
            words=words,
            language=self.call.language,
            finish_reason="length" if any(piece.finish_reason == "length" for piece in pieces) else "stop",
            tokens=tuple(token for piece in pieces for token in piece.tokens),
            temperature=self.call.options.temperature,
            avg_logprob=sum(piece.logprob for piece in pieces) / steps if steps else None,
            compression_ratio=compression_ratio(text) if text else None,
            logprobs=joined_logprobs([piece.logprobs for piece in said]) if self.call.options.logprobs else None,
            warnings=tuple(dict.fromkeys(warnings)),
        )


@dataclass(slots=True, eq=False)
class Call:
    """A call that is not finished, or was given up: then `over`, and what is still on its way is dropped."""

    id: int
    options: DecodingOptions
    prompt: Prompt
    language: str | None
    open_segments: int
    warnings: tuple[str, ...] = ()
    running: set[str] = field(default_factory=set)
    over: bool = False


def _joined(pieces: Sequence[Piece]) -> tuple[str, Sequence[Word] | None]:
    """Text and words of pieces one after the other; no words if one of the pieces has none."""
    if len(pieces) == 1 and pieces[0].begin == 0.0:
        return pieces[0].text, pieces[0].words
    text = ""
    words: list[Word] | None = []
    for piece in pieces:
        space = _separator(text, piece.text)
        text += space + piece.text
        if words is None or piece.words is None:
            words = None
            continue
        moved = [word.shifted(piece.begin) for word in piece.words]
        if moved:
            moved[0] = replace(moved[0], text=space + moved[0].text)
        words += moved
    return text, None if words is None else tuple(words)


def _separator(before: str, after: str) -> str:
    """What stands between two texts: a space, but nothing where scripts meet that are written without."""
    return "" if not before or (_unspaced(before[-1]) and _unspaced(after[0])) else " "


def _unspaced(character: str) -> bool:
    name = unicodedata.name(character, "")
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    return (wide and not name.startswith("HANGUL")) or name.startswith(_UNSPACED_SCRIPTS)
