"""Agglomerative clustering of unit vectors with average linkage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def agglomerate(points: NDArray[np.float32], *, threshold: float = -np.inf, groups: int = 1) -> NDArray[np.int64]:
    """Join the two groups of the largest mean cosine (UPGMA) while it reaches the threshold and enough groups are left.

    Under average linkage no group becomes nearer to a third by a join, so that all groups that are each other's nearest
    can be joined at once (Murtagh, "A Survey of Recent Advances in Hierarchical Clustering Algorithms", 1983): some
    twenty rounds of large steps, during which other threads run, instead of N small ones.

    Memory is at most 8 N^2 bytes, time about N^2 operations a round.

    Args:
        points: (N, D), rows of unit length, N at least 1.

    Returns:
        (N,) labels 0, 1, ... without holes.
    """
    alike = points @ points.T
    np.fill_diagonal(alike, -np.inf)
    left = _Left(alike, np.ones(len(points), np.float32), alike.argmax(1), np.arange(len(points)))
    joined: list[NDArray[np.int64]] = []
    heights: list[NDArray[np.float32]] = []
    while True:
        keep, drop, height = left.mutual(threshold)
        if not len(keep):
            break
        joined.append(np.stack([left.names[keep], left.names[drop]]))
        heights.append(height)
        left.join(keep, drop)
        if 2 * np.count_nonzero(left.sizes) <= len(left.sizes):
            left = left.packed()
    return _labels(len(points), joined, heights, len(points) - groups)


def _labels(
    count: int, joined: list[NDArray[np.int64]], heights: list[NDArray[np.float32]], most: int
) -> NDArray[np.int64]:
    """Labels after the highest joins, at most so many; each join is a row of who stays and a row of who becomes him."""
    parent = np.arange(count)
    if joined and most > 0:
        highest = np.argsort(-np.concatenate(heights), kind="stable")[:most]
        stays, becomes = np.concatenate(joined, axis=1)[:, highest]
        parent[becomes] = stays
        while not np.array_equal(parent, above := parent[parent]):
            parent = above
    labels: NDArray[np.int64] = np.unique(parent, return_inverse=True)[1]
    return labels


@dataclass(frozen=True, slots=True)
class _Left:
    """The groups that are left, and rows of -inf where one became a part of another.

    Attributes:
        alike: (M, M) mean cosine of two groups, -inf on the diagonal, symmetric to the bit.
        sizes: (M,) points of each group, 0 where none is left.
        nearest: (M,) where each row is largest.
        names: (M,) the first point of each group.
    """

    alike: NDArray[np.float32]
    sizes: NDArray[np.float32]
    nearest: NDArray[np.int64]
    names: NDArray[np.int64]

    def mutual(self, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Pairs that are each other's nearest, at least as alike as the threshold, and how alike they are."""
        rows = np.arange(len(self.sizes))
        best = self.alike[rows, self.nearest]
        first = (self.nearest[self.nearest] == rows) & (rows < self.nearest) & (best >= threshold) & (best > -np.inf)
        keep = np.flatnonzero(first)
        return keep, self.nearest[keep], best[keep]

    def join(self, keep: NDArray[np.int64], drop: NDArray[np.int64]) -> None:
        """Make each of `drop` a part of the same one of `keep`."""
        alike, sizes = self.alike, self.sizes
        share = sizes[keep] / (sizes[keep] + sizes[drop])
        rows = share[:, None] * alike[keep] + (1 - share)[:, None] * alike[drop]
        block = share * rows[:, keep] + (1 - share) * rows[:, drop]
        rows[:, keep] = (block + block.T) / 2
        rows[:, drop] = -np.inf
        rows[np.arange(len(keep)), keep] = -np.inf
        sizes[keep] += sizes[drop]
        sizes[drop] = 0.0
        alike[keep] = rows
        alike[:, keep] = rows.T
        alike[drop] = -np.inf
        alike[:, drop] = -np.inf
        changed = np.zeros(len(sizes), bool)
        changed[keep] = changed[drop] = True
        stale = np.flatnonzero((changed | changed[self.nearest]) & (sizes > 0.0))
        self.nearest[stale] = alike[stale].argmax(1)

    def packed(self) -> _Left:
        """The same without the rows that are none."""
        kept = np.flatnonzero(self.sizes)
        place = np.zeros(len(self.sizes), np.int64)
        place[kept] = np.arange(len(kept))
        return _Left(self.alike[np.ix_(kept, kept)], self.sizes[kept], place[self.nearest[kept]], self.names[kept])
