"""From the ids of the language model to the text of a piece, with an eye on loops and on texts that were cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.bytelevel import token_logprob
from engine.fun_asr_nano.call import Piece
from engine.fun_asr_nano.decoding import Completion
from engine.fun_asr_nano.prompt import NanoTokenizer
from engine.fun_asr_nano.text import clean
from engine.repetition import Loop, cut_loops, find_loop

_SHORTEST_HALVED = 4.0
"""Seconds; halves of less tear words apart more often than they help."""
_DEEPEST = 3


class LoopFinder(Protocol):
    def __call__(self, text: str, *, truncated: bool = False) -> Loop | None: ...


@dataclass(frozen=True, slots=True)
class TextRules:
    """How ids become a text, and what is a loop in it; the reference implementation's rules are others."""

    clean: Callable[[str], str] = clean
    find_loop: LoopFinder = find_loop


class Writer:
    """Fills in text and tokens of pieces."""

    def __init__(self, tokenizer: NanoTokenizer, rules: TextRules) -> None:
        self._tokenizer = tokenizer
        self._rules = rules

    def write(self, piece: Piece, completion: Completion) -> bool:
        """Read what the model wrote for a piece; false if it should rather be decoded again in halves."""
        piece.tokens, piece.finish_reason = completion.ids, completion.finish_reason
        piece.text = self._rules.clean(self._tokenizer.decode(completion.ids))
        if completion.logprobs is not None:
            self._note_logprobs(piece, completion.ids, completion.logprobs)
        truncated = piece.finish_reason == "length"
        asked_for = truncated and piece.limit == piece.call.options.max_new_tokens
        looping = self._rules.find_loop(piece.text, truncated=truncated) is not None
        if (looping or (truncated and not asked_for)) and piece.duration >= _SHORTEST_HALVED and piece.depth < _DEEPEST:
            return False
        if looping:
            piece.text = cut_loops(piece.text, truncated=truncated).strip()
            piece.tokens, piece.logprobs = tuple(self._tokenizer.encode(piece.text)), None
            piece.warnings += ("the model fell into a loop; one copy of what it repeated was kept",)
        if truncated:
            limit = "max_new_tokens" if asked_for else "the model's limit"
            piece.warnings += (f"the text of a segment ends at {limit} and may be incomplete",)
        return True

    def _note_logprobs(self, piece: Piece, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        piece.logprob, piece.steps = sum(logprobs), len(logprobs)
        spelled = zip(map(self._tokenizer.spell, ids), logprobs, strict=False)  # the stop id's is left over
        piece.logprobs = tuple(token_logprob(data, logprob) for data, logprob in spelled if data)
