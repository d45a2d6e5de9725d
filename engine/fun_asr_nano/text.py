"""From what the language model wrote to what was said."""

from __future__ import annotations

import re

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_MARKERS = re.compile(
    r"<\|[^<>|\s]{1,40}\|>"  # control tokens spelled out: <|nospeech|>, <|0.00|>
    r"|</?(?:think|tool_call|tool_response|strong)>"
    r"|(?<![A-Za-z0-9])(?:/sil|endofpatch|endofbreak)(?![A-Za-z0-9])"
)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_FILLER = re.compile(r"(?:FFFF\s*)+")


def clean(text: str) -> str:
    """Remove the model's own markers and nothing that a speaker can have said.

    Brackets, angle brackets and leading quotes stay. "FFFF", which the model writes for nothing at all, goes only where
    it is all there is. Broken characters and control characters go; runs of white space become one space.
    """
    text = _MARKERS.sub(" ", _THOUGHT.sub(" ", text))
    text = " ".join(_UNPRINTABLE.sub("", text).split())
    return "" if _FILLER.fullmatch(text) else text
