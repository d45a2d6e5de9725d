"""Which windows belong to one speaker.

Agglomeration first (average linkage on cosines, cut high, so that groups are pure), then rounds of: drop groups with
too little speech of their own; give every window to the nearest group along the recording, where a change of speaker
costs something (Viterbi); join groups that are as alike as the windows inside them are. That last measure, the mean
cosine between two groups over the geometric mean of those within, does not depend on how noisy the embeddings of a
recording are, nor on what its channel adds to all of them, so one threshold counts speakers everywhere. No randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diarization.agglomeration import agglomerate
from diarization.embedding import Calibration, Embeddings
from diarization.windows import Window

Labels = NDArray[np.int64]

MOST_AGGLOMERATED = 1500
"""Windows that the quadratic first step looks at; of longer recordings every n-th (20 MB)."""

_PRIOR_PAIRS = 10.0
"""The calibration's `within` counts as much as so many pairs of windows of a group."""
_LEAST_EVIDENCE, _MOST_EVIDENCE = 1.0, 30.0
_EVIDENCE_SHARE = 0.015
"""To be a speaker a group needs windows that lie whole inside its turns: the least, and this share of all, but no more
than the most (some 22 s of speech)."""
_EDGE_EVIDENCE = 0.25
"""A window beside a change may hold both voices: it counts so much, and all of them no more than the others do, or the
mixtures at the changes of two voices would be a third."""
_DOUBT = 0.15
"""Groups of few windows seem less alike than they are, for what was said in them differs: one window by so much, and n
by the square root of n less."""
_PAUSED_SWITCH, _LONG_PAUSE = 0.3, 0.5
"""Across a pause below 0.5 s a change costs this share of one without; across a longer one nothing."""
_MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class WindowSequence:
    """Windows in the order of the recording.

    Attributes:
        embeddings: (N, D) float32, rows of unit length.
        joined: (N - 1,) bool, whether a window and the next are in one span, and so overlap.
        gaps: (N - 1,) seconds between the end of a window and the next, 0 or below where there is none.
    """

    embeddings: Embeddings
    joined: NDArray[np.bool_]
    gaps: NDArray[np.float64]

    @classmethod
    def of(cls, windows: Sequence[Window], embeddings: Embeddings) -> WindowSequence:
        """Windows as `windows_of` makes them, and the embedding of each."""
        spans = np.array([window.span for window in windows], np.int64)
        starts = np.array([window.start for window in windows])
        ends = np.array([window.end for window in windows])
        return cls(embeddings, spans[1:] == spans[:-1], starts[1:] - ends[:-1])


def cluster(windows: WindowSequence, calibration: Calibration, *, fewest: int = 1, most: int | None = None) -> Labels:
    """Speakers of windows, numbered by first appearance.

    Args:
        fewest, most: bounds on how many; where there are fewer windows than `fewest`, each has its own speaker.

    Returns:
        (N,) labels from 0.
    """
    count = len(windows.embeddings)
    if count == 0:
        return np.zeros(0, np.int64)
    if most == 1:
        return np.zeros(count, np.int64)
    groups = _Groups(windows, calibration)
    labels = groups.estimated(groups.first())
    if most is not None:
        labels = groups.reduced(labels, most)
    return in_order(groups.raised(labels, fewest))


def in_order(labels: Labels) -> Labels:
    """The same partition, numbered by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    ordered: Labels = rank[inverse]
    return ordered


def centres(embeddings: Embeddings, labels: Labels) -> Embeddings:
    """(speakers, D) mean embedding of each label 0, 1, ..., of unit length."""
    sums = _sums(embeddings, labels)
    unit: Embeddings = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return unit


def _sums(embeddings: Embeddings, labels: Labels) -> Embeddings:
    members = np.zeros((int(labels.max()) + 1, len(labels)), np.float32)
    members[labels, np.arange(len(labels))] = 1.0
    sums: Embeddings = members @ embeddings
    return sums


def _compact(labels: Labels) -> Labels:
    compact: Labels = np.unique(labels, return_inverse=True)[1]
    return compact


class _Groups:
    """The steps of the clustering of one recording. Labels are always 0, 1, ... without holes."""

    def __init__(self, windows: WindowSequence, calibration: Calibration) -> None:
        self._embeddings = windows.embeddings
        self._joined = windows.joined
        self._calibration = calibration
        self._count = len(windows.embeddings)
        self._neighbours = np.einsum("ij,ij->i", self._embeddings[1:], self._embeddings[:-1])
        share = np.where(self._joined, 1.0, np.where(windows.gaps < _LONG_PAUSE, _PAUSED_SWITCH, 0.0))
        self._switch = calibration.switch * share
        self._within = self._typical()

    def _typical(self) -> float:
        """Cosine of two windows of one voice here: those next to each other without overlap mostly are of one."""
        pairs = self._joined[1:] & self._joined[:-1]
        cosines = np.einsum("ij,ij->i", self._embeddings[2:], self._embeddings[:-2])[pairs]
        middle = float(np.median(cosines)) * len(cosines) if len(cosines) else 0.0
        return (middle + self._calibration.within * _PRIOR_PAIRS) / (len(cosines) + _PRIOR_PAIRS)

    def first(self) -> Labels:
        """Many pure groups."""
        step = -(-self._count // MOST_AGGLOMERATED)
        threshold = self._calibration.link * self._within
        labels = agglomerate(self._embeddings[::step], threshold=threshold)
        if step == 1:
            return labels
        sizes = np.bincount(labels)
        kept = np.flatnonzero(sizes >= min(2, sizes.max()))
        return self._assigned(centres(self._embeddings[::step], labels)[kept])

    def estimated(self, labels: Labels) -> Labels:
        """As many speakers as there is evidence for."""
        for _ in range(_MOST_ROUNDS):
            evidence = self._evidence(labels)
            needed = min(_LEAST_EVIDENCE + _EVIDENCE_SHARE * self._count, _MOST_EVIDENCE, float(evidence.max()))
            strong = np.flatnonzero(evidence >= needed)
            new = self._assigned(centres(self._embeddings, labels)[strong])
            new = self._merged(new, self._calibration.merge)
            if np.array_equal(new, labels):
                break
            labels = new
        return labels

    def reduced(self, labels: Labels, most: int) -> Labels:
        """At most so many speakers: the most alike become one."""
        if labels.max() < most:
            return labels
        labels = self._merged(labels, -np.inf, most)
        return self._assigned(centres(self._embeddings, labels))

    def raised(self, labels: Labels, fewest: int) -> Labels:
        """At least so many speakers: the loosest group falls into two, until there are enough."""
        fewest = min(fewest, self._count)
        if labels.max() + 1 >= fewest:
            return labels
        while (found := int(labels.max()) + 1) < fewest:
            sizes = np.bincount(labels)
            means = _sums(self._embeddings, labels) / sizes[:, None]
            scatter = np.where(sizes > 1, sizes * (1.0 - np.einsum("ij,ij->i", means, means)), -1.0)
            members = np.flatnonzero(labels == int(scatter.argmax()))
            step = -(-len(members) // MOST_AGGLOMERATED)
            halves = agglomerate(self._embeddings[members[::step]], groups=2)
            pair = centres(self._embeddings[members[::step]], halves)
            second = (self._embeddings[members] @ pair.T).argmax(1)
            if len(np.unique(second)) < 2:
                second = np.arange(len(members)) % 2
            labels = labels.copy()
            labels[members[second == 1]] = found
        refined = self._assigned(centres(self._embeddings, labels))
        return refined if int(refined.max()) + 1 == fewest else labels

    def _assigned(self, centre: Embeddings) -> Labels:
        """Every window to a group, along the best path through the recording."""
        return _compact(best_path(self._embeddings @ centre.T, self._switch))

    def _evidence(self, labels: Labels) -> NDArray[np.float64]:
        """Windows of each group, those beside a change inside a span at a discount."""
        change = self._joined & (labels[1:] != labels[:-1])
        edge = np.zeros(self._count, bool)
        edge[1:] |= change
        edge[:-1] |= change
        groups = int(labels.max()) + 1
        inside = np.bincount(labels[~edge], minlength=groups)
        beside = np.bincount(labels[edge], minlength=groups)
        evidence: NDArray[np.float64] = inside + np.minimum(_EDGE_EVIDENCE * beside, inside)
        return evidence

    def _merged(self, labels: Labels, threshold: float, most: int = 1) -> Labels:
        """Join the most alike groups while they are above the threshold and there are more than `most`."""
        while labels.max() >= most:
            alike = self._similarity(labels) + self._doubt(labels)
            i, j = divmod(int(alike.argmax()), len(alike))
            if alike[i, j] < threshold:
                break
            labels = _compact(np.where(labels == j, i, labels))
        return labels

    def _doubt(self, labels: Labels) -> NDArray[np.float64]:
        """(groups, groups): how much less alike than measured the smaller of two groups may seem by its few windows."""
        evidence = np.maximum(self._evidence(labels), _EDGE_EVIDENCE)
        doubt: NDArray[np.float64] = _DOUBT / np.sqrt(np.minimum.outer(evidence, evidence))
        return doubt

    def _similarity(self, labels: Labels) -> NDArray[np.float64]:
        """(groups, groups): 1 where two groups are as alike as the windows in them; -inf on the diagonal."""
        sizes = np.bincount(labels).astype(np.float64)
        sums = _sums(self._embeddings, labels).astype(np.float64)
        # Windows that overlap are alike for that reason: they are no evidence about the voice.
        beside = self._joined & (labels[1:] == labels[:-1])
        at = labels[1:][beside]
        overlaps = np.bincount(at, minlength=len(sizes))
        overlap_cosines = np.bincount(at, self._neighbours[beside], len(sizes))
        squares = np.einsum("ij,ij->i", sums, sums)
        pairs = sizes * (sizes - 1) / 2 - overlaps + _PRIOR_PAIRS
        within = ((squares - sizes) / 2 - overlap_cosines + _PRIOR_PAIRS * self._within) / pairs
        within = np.maximum(within, 1e-3)
        alike: NDArray[np.float64] = (sums @ sums.T) / np.outer(sizes, sizes) / np.sqrt(np.outer(within, within))
        np.fill_diagonal(alike, -np.inf)
        return alike


def best_path(scores: NDArray[np.float32], switch: NDArray[np.float64]) -> Labels:
    """The labels of the largest sum of scores, less what changes cost (Viterbi).

    Args:
        scores: (N, K), how well label k fits window n.
        switch: (N - 1,), the cost of another label at n + 1 than at n.
    """
    totals = scores.astype(np.float64)
    leaders: list[int] = []
    floors: list[float] = []
    # Few calls a window: each holds up all other threads for longer than it computes.
    for before, after, cost in zip(totals[:-1], totals[1:], switch.tolist(), strict=True):
        leaders.append(leader := int(before.argmax()))
        floors.append(floor := before.item(leader) - cost)
        after += np.maximum(before, floor)
    label = int(totals[-1].argmax())
    path = [label]
    for total, leader, floor in zip(totals[-2::-1], leaders[::-1], floors[::-1], strict=True):
        if total.item(label) < floor:
            label = leader
        path.append(label)
    return np.array(path[::-1], np.int64)
