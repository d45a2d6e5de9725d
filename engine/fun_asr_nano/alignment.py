"""Word times: the final text, forced onto the CTC head's view of the sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.fun_asr_nano.ctc import CtcHead
from engine.fun_asr_nano.ctc_tokenizer import CtcTokenizer
from engine.fun_asr_nano.placing import AlignedPiece, Lattice, Placer, depends_on_score
from engine.fun_asr_nano.viterbi import Floats, Integers, rows_needed
from engine.recognition import Word


@dataclass(frozen=True, slots=True)
class AlignmentJob:
    """A segment's hidden CTC rows, (rows, dim) on the device, and the text that was said in it."""

    hidden: Tensor
    text: str


@dataclass(frozen=True, slots=True)
class _Target:
    """The labels of a text that can be aligned: the rows of its segment, its labels each once, where each label is."""

    segment: int
    hidden: Tensor
    labels: list[int]
    uniques: Integers
    columns: Integers


class CtcAligner:
    """Aligns the texts of any number of segments in one pass over the head and one Viterbi call."""

    def __init__(self, head: CtcHead, tokenizer: CtcTokenizer, *, row_seconds: float) -> None:
        self._head = head
        self._tokenizer = tokenizer
        self._row_seconds = row_seconds
        self.placer = Placer(tokenizer.pieces, row_seconds=row_seconds)

    def words(self, jobs: Sequence[AlignmentJob]) -> list[tuple[Word, ...] | None]:
        """Words with times in seconds from the beginning of their segment, None where the text does not fit."""
        found = self.pieces(jobs, probabilities=False)
        return [None if pieces is None else self.placer.merge(pieces) for pieces in found]

    def pieces(self, jobs: Sequence[AlignmentJob], *, probabilities: bool = True) -> list[list[AlignedPiece] | None]:
        """The labels of each text with their rows, None where there is no alignment.

        Args:
            probabilities: give each its score, not only those that decide over word times.
        """
        return self.placer.pieces(self.lattice(jobs, probabilities=probabilities))

    @torch.inference_mode()
    def lattice(self, jobs: Sequence[AlignmentJob], *, probabilities: bool = False) -> Lattice:
        """What only the device can do: the rest needs no torch.

        Log-probabilities take the whole vocabulary of every row, so only the segments whose scores are needed get them.
        For the others a few columns are enough: what they lack is a constant a row, and every path has all rows.
        """
        targets = [target for index, job in enumerate(jobs) if (target := self._target(index, job)) is not None]
        scored = [probabilities or self._depends_on_scores(target) for target in targets]
        plain = [target for target, flag in zip(targets, scored, strict=True) if not flag]
        exact = [target for target, flag in zip(targets, scored, strict=True) if flag]
        ordered = plain + exact
        width = 1 + max((len(target.uniques) for target in ordered), default=0)
        parts = [self._logits(plain, width), self._log_probs(exact, width)]
        filled = [part for part in parts if len(part)] or parts[:1]
        return Lattice(
            count=len(jobs),
            segments=tuple(target.segment for target in ordered),
            values=filled[0] if len(filled) == 1 else np.concatenate(filled),
            row_offsets=_offsets([len(target.hidden) for target in ordered]),
            labels=np.array([label for target in ordered for label in target.labels], np.int64),
            columns=np.concatenate([np.zeros(0, np.int64), *(target.columns for target in ordered)]),
            label_offsets=_offsets([len(target.labels) for target in ordered]),
        )

    def _target(self, index: int, job: AlignmentJob) -> _Target | None:
        """None where there is nothing to align, or too few rows for it."""
        labels = self._tokenizer.encode(job.text)
        if not labels or rows_needed(labels) > len(job.hidden) or self._head.blank in labels:
            return None
        uniques, inverse = np.unique(labels, return_inverse=True)
        return _Target(index, job.hidden, labels, uniques.astype(np.int64), inverse.astype(np.int64) + 1)

    def _depends_on_scores(self, target: _Target) -> bool:
        return any(depends_on_score(self._tokenizer.piece(label)) for label in target.uniques.tolist())

    def _logits(self, targets: Sequence[_Target], width: int) -> Floats:
        """(rows, width): the blank's column first, then each label's once."""
        if not targets:
            return np.zeros((0, width), np.float32)
        hidden = [target.hidden for target in targets]
        return _on_host(self._head.label_logits(hidden, self._columns(targets, width)))

    def _log_probs(self, targets: Sequence[_Target], width: int) -> Floats:
        if not targets:
            return np.zeros((0, width), np.float32)
        hidden = torch.cat([target.hidden for target in targets])
        owners = np.repeat(np.arange(len(targets)), [len(target.hidden) for target in targets])
        on_device = torch.from_numpy(owners).to(hidden.device)
        return _on_host(self._head.label_log_probs(hidden, on_device, self._columns(targets, width)))

    def _columns(self, targets: Sequence[_Target], width: int) -> Tensor:
        """Only the columns of the labels in a text leave the device."""
        wanted = np.full((len(targets), width), self._head.blank, np.int64)
        for row, target in zip(wanted, targets, strict=True):
            row[1 : 1 + len(target.uniques)] = target.uniques
        return torch.from_numpy(wanted).to(targets[0].hidden.device)


def _on_host(values: Tensor) -> Floats:
    host: Floats = values.cpu().numpy()
    return host


def _offsets(lengths: Sequence[int]) -> Integers:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
