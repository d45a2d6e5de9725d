"""Agglomerative clustering of unit vectors with average linkage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def agglomerate(points: NDArray[np.float32], *, threshold: float = -np.inf, groups: int = 1) -> NDArray[np.int64]:
    """Join the two groups of the largest mean cosine (UPGMA) while it reaches the threshold and enough groups are left.

    Memory is 4 N^2 bytes, time about N^2 operations on rows.

    Args:
        points: (N, D), rows of unit length, N at least 1.

    Returns:
        (N,) labels 0, 1, ... without holes.
    """
    count = len(points)
    alike = points @ points.T
    np.fill_diagonal(alike, -np.inf)
    sizes = np.ones(count, np.float32)
    best = alike.max(1)
    parent = np.arange(count)
    for _ in range(count - groups):
        i = int(best.argmax())
        if best[i] < threshold:
            break
        j = int(alike[i].argmax())
        stale = _join(alike, sizes, best, i, j)
        best[stale] = alike[stale].max(1)
        parent[parent == j] = i
    labels: NDArray[np.int64] = np.unique(parent, return_inverse=True)[1]
    return labels


def _join(
    alike: NDArray[np.float32], sizes: NDArray[np.float32], best: NDArray[np.float32], i: int, j: int
) -> NDArray[np.int64]:
    """Make j a part of i. Updates everything but the rows returned, whose best partner has changed."""
    row = (sizes[i] * alike[i] + sizes[j] * alike[j]) / (sizes[i] + sizes[j])
    row[i] = row[j] = -np.inf
    lost = (best == alike[:, i]) | (best == alike[:, j])
    lost[[i, j]] = False
    sizes[i] += sizes[j]
    alike[i] = alike[:, i] = row
    alike[j] = alike[:, j] = -np.inf
    best[i], best[j] = row.max(), -np.inf
    np.maximum(best, row, out=best, where=~lost)
    stale: NDArray[np.int64] = np.flatnonzero(lost & np.isfinite(row))
    return stale
