"""Word times: the final text, forced onto the CTC head's view of the sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from engine.fun_asr_nano.ctc import CtcHead
from engine.fun_asr_nano.ctc_tokenizer import CtcTokenizer
from engine.fun_asr_nano.viterbi import Alignment, align, rows_needed
from engine.recognition import Word
from engine.words import TimedPiece, merge_pieces

_HEARD = 0.5  # a digit or symbol that the head hears with this probability is measured


@dataclass(frozen=True, slots=True)
class AlignmentJob:
    """A segment's hidden CTC rows, (rows, dim) on the device, and the text that was said in it."""

    hidden: Tensor
    text: str


@dataclass(frozen=True, slots=True)
class AlignedPiece:
    """A label of the text at rows [start_row, end_row); `score` is its highest probability there."""

    label: int
    data: bytes
    start_row: int
    end_row: int
    score: float


class CtcAligner:
    """Aligns the texts of any number of segments in one pass over the head and one Viterbi call."""

    def __init__(self, head: CtcHead, tokenizer: CtcTokenizer, *, row_seconds: float) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._row_seconds = row_seconds

    def words(self, jobs: Sequence[AlignmentJob]) -> list[tuple[Word, ...] | None]:
        """Words with times in seconds from the beginning of their segment, None where the text does not fit."""
        return [None if pieces is None else self._merge(pieces) for pieces in self.pieces(jobs)]

    @torch.inference_mode()
    def pieces(self, jobs: Sequence[AlignmentJob]) -> list[list[AlignedPiece] | None]:
        """The labels of each text with their rows, None where there is no alignment."""
        targets = [self._tokenizer.encode(job.text) for job in jobs]
        possible = [
            index
            for index, (job, target) in enumerate(zip(jobs, targets, strict=True))
            if target and rows_needed(target) <= len(job.hidden) and self._head.blank not in target
        ]
        found: list[list[AlignedPiece] | None] = [None] * len(jobs)
        if possible:
            hidden = [jobs[index].hidden for index in possible]
            alignments = self._align(hidden, [targets[index] for index in possible])
            for index, alignment in zip(possible, alignments, strict=True):
                found[index] = None if alignment is None else self._pieces(targets[index], alignment)
        return found

    def _align(self, hidden: list[Tensor], targets: list[list[int]]) -> list[Alignment | None]:
        """Only the columns of the labels in a text leave the device: the blank first, then each label once."""
        device = hidden[0].device
        uniques = [np.unique(target, return_inverse=True) for target in targets]
        wanted = np.full((len(targets), 1 + max(len(labels) for labels, _ in uniques)), self._head.blank, np.int64)
        for row, (labels, _) in zip(wanted, uniques, strict=True):
            row[1 : 1 + len(labels)] = labels
        lengths = [len(rows) for rows in hidden]
        owners = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(device)
        log_probs = self._head.label_log_probs(torch.cat(hidden), owners, torch.from_numpy(wanted).to(device))
        return align(
            log_probs.cpu().numpy(),
            _offsets(lengths),
            np.concatenate([np.asarray(target, np.int64) for target in targets]),
            np.concatenate([inverse.astype(np.int64) + 1 for _, inverse in uniques]),
            _offsets([len(target) for target in targets]),
        )

    def _pieces(self, target: list[int], alignment: Alignment) -> list[AlignedPiece]:
        columns = zip(
            target, alignment.starts.tolist(), alignment.ends.tolist(), alignment.scores.tolist(), strict=True
        )
        return [
            AlignedPiece(label, self._tokenizer.piece(label), start, end, score) for label, start, end, score in columns
        ]

    def _merge(self, pieces: list[AlignedPiece]) -> tuple[Word, ...]:
        timed = [
            TimedPiece(
                piece.data,
                round(piece.start_row * self._row_seconds, 6),
                round(piece.end_row * self._row_seconds, 6),
                piece.score >= _HEARD or not _written_otherwise(piece.data),
            )
            for piece in pieces
        ]
        return tuple(merge_pieces(timed))


@lru_cache(maxsize=65536)
def _written_otherwise(data: bytes) -> bool:
    """Whether a piece holds a digit or symbol: the head learned spelled-out text, where "5" is a word."""
    text = data.decode(errors="ignore")
    return any(not (character.isalpha() or character.isspace()) for character in text)


def _offsets(lengths: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
