"""From what the CTC head says of the labels of a text to words with times; no torch, so that any process can do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from engine.fun_asr_nano.viterbi import Alignment, Floats, Integers, align
from engine.recognition import Word
from engine.words import TimedPiece, is_pronounced, merge_pieces

_HEARD = 0.5  # a digit or symbol that the head hears with this probability is measured


class AlignedPiece(NamedTuple):
    """A label of the text at rows [start_row, end_row).

    `score` is its highest probability there, if probabilities were asked for or its segment `depends_on_scores`.
    """

    label: int
    data: bytes
    start_row: int
    end_row: int
    score: float


@dataclass(frozen=True, slots=True)
class Lattice:
    """What is to be aligned of a batch of segments, for `viterbi.align`.

    `count` is the number of segments in the batch, `segments` which of them can be aligned, in the order of the arrays.
    `values` (rows, K) are log-probabilities, or lack a constant a row, which changes no path.
    """

    count: int
    segments: tuple[int, ...]
    values: Floats
    row_offsets: Integers
    labels: Integers
    columns: Integers
    label_offsets: Integers


class Placer:
    """Finds the rows of the labels and merges them to words."""

    def __init__(self, spelled: Sequence[bytes], *, row_seconds: float) -> None:
        """`spelled` are the bytes of each label; labels beyond it stand for none."""
        self._spelled = spelled
        self._row_seconds = row_seconds

    def words(self, lattice: Lattice) -> list[tuple[Word, ...] | None]:
        """Words with times in seconds from the beginning of their segment, None where the text does not fit."""
        return [None if pieces is None else self.merge(pieces) for pieces in self.pieces(lattice)]

    def pieces(self, lattice: Lattice) -> list[list[AlignedPiece] | None]:
        """The labels of each text with their rows, None where there is no alignment."""
        found: list[list[AlignedPiece] | None] = [None] * lattice.count
        if not lattice.segments:
            return found
        alignments = align(lattice.values, lattice.row_offsets, lattice.labels, lattice.columns, lattice.label_offsets)
        labels, offsets = lattice.labels.tolist(), lattice.label_offsets.tolist()
        for place, (segment, alignment) in enumerate(zip(lattice.segments, alignments, strict=True)):
            if alignment is not None:
                found[segment] = self._pieces(labels[offsets[place] : offsets[place + 1]], alignment)
        return found

    def merge(self, pieces: Sequence[AlignedPiece]) -> tuple[Word, ...]:
        """The words of a text from its pieces."""
        width = self._row_seconds
        return tuple(
            merge_pieces(
                TimedPiece(
                    data,
                    round(start_row * width, 6),
                    round(end_row * width, 6),
                    score >= _HEARD or not _written_otherwise(data),
                )
                for _, data, start_row, end_row, score in pieces
            )
        )

    def _pieces(self, target: Sequence[int], alignment: Alignment) -> list[AlignedPiece]:
        spelled = (self._spelled[label] if label < len(self._spelled) else b"" for label in target)
        columns = (alignment.starts.tolist(), alignment.ends.tolist(), alignment.scores.tolist())
        return list(map(AlignedPiece, target, spelled, *columns))


@lru_cache(maxsize=65536)
def depends_on_score(data: bytes) -> bool:
    """Whether the probability of a piece decides how it is timed: that of punctuation alone says nothing."""
    return _written_otherwise(data) and is_pronounced(data)


@lru_cache(maxsize=65536)
def _written_otherwise(data: bytes) -> bool:
    """Whether a piece holds a digit or symbol: the head learned spelled-out text, where "5" is a word."""
    text = data.decode(errors="ignore")
    return any(not (character.isalpha() or character.isspace()) for character in text)
