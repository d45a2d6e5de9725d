"""The published pipeline's clustering and timeline, as the yardstick: what a peer with the same embeddings does.

What `funasr` 1.4.16 computes; partitions equal the goldens. Below 20 windows everybody is one speaker. The branch for
2,048 windows and more (UMAP and HDBSCAN) is not reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diarization.windows import Window

Embeddings = NDArray[np.float32]
Labels = NDArray[np.int64]

FEWEST_WINDOWS, MOST_WINDOWS = 20, 2048
_KEPT_SHARE = 0.022
_KEPT_LEAST = 6
_MOST_SPEAKERS = 15
_MERGE_COSINE = 0.78
_SHORTEST_PIECE = 0.7


def published_labels(embeddings: Embeddings, speakers: int | None = None, merge: float = _MERGE_COSINE) -> Labels:
    """(N, D) embeddings to (N,) labels, numbered by first appearance.

    Raises:
        ValueError: there are too many windows for the spectral branch.
    """
    count = len(embeddings)
    if count < FEWEST_WINDOWS:
        return np.zeros(count, np.int64)
    if count >= MOST_WINDOWS:
        raise ValueError(f"{count} windows: the spectral branch ends at {MOST_WINDOWS}")
    values, vectors = np.linalg.eigh(_laplacian(embeddings.astype(np.float64)))
    if speakers is None:
        found = int(np.argmax(np.diff(values[: _MOST_SPEAKERS + 1]))) + 1
        labels = _merged(embeddings, k_means(vectors[:, :found], found), merge)
    else:
        labels = k_means(vectors[:, :speakers], speakers)
    return in_order(labels)


def in_order(labels: Labels) -> Labels:
    """The same partition, numbered by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    ordered: Labels = rank[inverse]
    return ordered


def published_turns(windows: Sequence[Window], labels: Labels) -> list[tuple[float, float, int]]:
    """Windows with their labels to (start, end, speaker) pieces in seconds, without overlap."""
    pieces = _joined([(window.start, window.end, int(label)) for window, label in zip(windows, labels, strict=True)])
    for number in range(1, len(pieces)):
        before, after = pieces[number - 1], pieces[number]
        if before[1] > after[0]:
            middle = (before[1] + after[0]) / 2
            pieces[number - 1], pieces[number] = (before[0], middle, before[2]), (middle, after[1], after[2])
    return _smoothed([(round(start, 2), round(end, 2), who) for start, end, who in pieces])


def published_sentence_speaker(turns: Sequence[tuple[float, float, int]], start: float, end: float) -> int:
    """The speaker of a sentence: largest overlap, where that of the one who leads counts twice."""
    best, speaker = 0.0, 0
    for turn_start, turn_end, who in turns:
        overlap = max(0.0, min(end, turn_end) - max(start, turn_start))
        if overlap > best:
            best, speaker = overlap, who
        if overlap > 0 and who == speaker:
            best += overlap
    return speaker


def _laplacian(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    similarity = unit @ unit.T
    count = len(similarity)
    kept = max(_KEPT_SHARE, _KEPT_LEAST / count)
    dropped = np.argsort(similarity, axis=1)[:, : int((1 - kept) * count)]
    np.put_along_axis(similarity, dropped, 0.0, axis=1)
    similarity = (similarity + similarity.T) / 2
    np.fill_diagonal(similarity, 0.0)
    laplacian: NDArray[np.float64] = np.diag(np.abs(similarity).sum(1)) - similarity
    return laplacian


def k_means(points: NDArray[np.float64], clusters: int, starts: int = 10, rounds: int = 300) -> Labels:
    """Lloyd's algorithm from k-means++ seeds, the best of several starts."""
    random = np.random.default_rng(0)
    best: tuple[float, Labels] | None = None
    for _ in range(starts):
        centres = [points[random.integers(len(points))]]
        while len(centres) < clusters:
            distance = np.min([((points - centre) ** 2).sum(1) for centre in centres], axis=0)
            total = distance.sum()
            share = distance / total if total > 0 else np.full(len(points), 1 / len(points))
            centres.append(points[random.choice(len(points), p=share)])
        middle = np.array(centres)
        for _ in range(rounds):
            distances = ((points[:, None] - middle) ** 2).sum(2)
            labels = distances.argmin(1)
            moved = np.array(
                [points[labels == k].mean(0) if (labels == k).any() else middle[k] for k in range(clusters)]
            )
            if np.allclose(moved, middle, rtol=0, atol=1e-10):
                break
            middle = moved
        inertia = float(distances.min(1).sum())
        if best is None or inertia < best[0]:
            best = inertia, labels.astype(np.int64)
    assert best is not None
    return best[1]


def _merged(embeddings: Embeddings, labels: Labels, threshold: float) -> Labels:
    while (names := np.unique(labels)).size > 1:
        centres = np.stack([embeddings[labels == name].mean(0) for name in names])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        similarity = np.triu(centres @ centres.T, 1)
        i, j = np.unravel_index(int(similarity.argmax()), similarity.shape)
        if similarity[i, j] < threshold:
            break
        labels = np.where(labels == names[j], names[i], labels)
    return labels


def _joined(pieces: Sequence[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    joined: list[tuple[float, float, int]] = []
    for start, end, who in pieces:
        if joined and joined[-1][2] == who and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], end, who)
        else:
            joined.append((start, end, who))
    return joined


def _smoothed(pieces: list[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    for number, (start, end, _) in enumerate(pieces):
        if end - start < _SHORTEST_PIECE and len(pieces) > 1:
            if number == 0:
                who = pieces[1][2]
            elif number == len(pieces) - 1:
                who = pieces[-2][2]
            else:
                before, after = start - pieces[number - 1][1], pieces[number + 1][0] - end
                who = pieces[number - 1][2] if before <= after else pieces[number + 1][2]
            pieces[number] = (start, end, who)
    return _joined(pieces)
