"""Two other ways to cluster the same embeddings: what ours is compared with besides the published one.

NME-SC: Park et al., "Auto-Tuning Spectral Clustering for Speaker Diarization Using Normalized Maximum Eigengap" (IEEE
Signal Processing Letters 27, 2020). It needs no threshold: the pruning of the affinities is the one whose largest
eigengap is widest for how many neighbours it keeps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.published_clustering import Embeddings, Labels, in_order, k_means
from diarization.agglomeration import agglomerate

_MOST_SPEAKERS = 8
_KEPT_SHARE = 0.25
_PRUNINGS = 20


def agglomerative_labels(embeddings: Embeddings, threshold: float) -> Labels:
    """Average linkage on cosines, cut at a threshold."""
    return in_order(agglomerate(embeddings, threshold=threshold))


def nme_sc_labels(embeddings: Embeddings) -> Labels:
    """(N, D) unit embeddings to (N,) labels, numbered by first appearance."""
    count = len(embeddings)
    if count < 3:
        return np.zeros(count, np.int64)
    ranked = np.argsort(-(embeddings @ embeddings.T), axis=1, kind="stable")
    prunings = np.unique(np.linspace(2, max(2, round(_KEPT_SHARE * count)), _PRUNINGS).astype(int))
    best: tuple[float, int, NDArray[np.float64]] | None = None
    for kept in prunings.tolist():
        laplacian = _laplacian(ranked, kept)
        values = np.linalg.eigvalsh(laplacian)
        gaps = np.diff(values[: _MOST_SPEAKERS + 1])
        gap = float(gaps.max()) / (float(values[-1]) + 1e-10)
        ratio = kept / count / (gap + 1e-10)
        if best is None or ratio < best[0]:
            best = ratio, int(gaps.argmax()) + 1, laplacian
    assert best is not None
    _, speakers, laplacian = best
    vectors = np.linalg.eigh(laplacian)[1][:, :speakers]
    return in_order(k_means(vectors, speakers))


def _laplacian(ranked: NDArray[np.int64], kept: int) -> NDArray[np.float64]:
    """Unnormalised, of the graph that joins every window to the windows most alike it, itself among them."""
    affinity = np.zeros(ranked.shape)
    np.put_along_axis(affinity, ranked[:, :kept], 1.0, axis=1)
    affinity = (affinity + affinity.T) / 2
    np.fill_diagonal(affinity, 0.0)
    laplacian: NDArray[np.float64] = np.diag(affinity.sum(1)) - affinity
    return laplacian
