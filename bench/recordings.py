"""The recordings with published transcripts, and how texts are compared."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import soundfile

DATA = Path(__file__).parent.parent / "tests" / "data"

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SPELLED = {"mr": "mister", **{str(value): name for value, name in enumerate(_NUMBERS)}}


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, its length in seconds and what is said in it."""

    path: Path
    seconds: float
    text: str


def recordings() -> list[Recording]:
    """Every recording with a transcript, by name."""
    texts = json.loads((DATA / "transcripts.json").read_text())
    paths = [(DATA / f"{name}.wav", text) for name, text in sorted(texts.items())]
    return [Recording(path, soundfile.info(path).duration, text) for path, text in paths]


def normalise(text: str) -> str:
    """Lower case, no punctuation, small numbers and "Mr." spelled out."""
    words = re.sub(r"[^\w' ]+", " ", text.lower().replace("-", " ")).split()
    return " ".join(_SPELLED.get(word, word) for word in words)


def word_error_rate(references: list[str], hypotheses: list[str]) -> float:
    """Word error rate over all texts together, after normalisation."""
    import jiwer

    return float(jiwer.wer([normalise(text) for text in references], [normalise(text) for text in hypotheses]))
