"""Which segments go through the encoder together."""

from __future__ import annotations

from collections.abc import Sequence


def next_batch(lengths: Sequence[int], *, max_rows: int, max_items: int) -> list[int]:
    """Choose a batch from what waits, oldest first.

    The oldest segment always goes, so nothing starves behind a long recording; the others are those nearest to it in
    length, so little is padded. The batch is sorted by length, longest first.

    Args:
        lengths: rows of each waiting segment, in order of arrival.
        max_rows: cap on the padded rows of the batch (longest x items); a segment that alone is longer goes alone.
        max_items: cap on the segments of the batch.

    Returns:
        Indices into `lengths`; empty only if nothing waits.
    """
    if not lengths:
        return []
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    first = last = order.index(0)
    while last - first + 1 < max_items:
        count = last - first + 2
        longer = first - 1 if first > 0 and lengths[order[first - 1]] * count <= max_rows else None
        shorter = last + 1 if last + 1 < len(order) and lengths[order[first]] * count <= max_rows else None
        if shorter is not None and (longer is None or _nearer(lengths, order, first, last)):
            last += 1
        elif longer is not None:
            first -= 1
        else:
            break
    return order[first : last + 1]


def _nearer(lengths: Sequence[int], order: Sequence[int], first: int, last: int) -> bool:
    """Whether the next shorter segment is nearer to the batch than the next longer one."""
    gap_below = lengths[order[last]] - lengths[order[last + 1]]
    gap_above = lengths[order[first - 1]] - lengths[order[first]]
    return gap_below <= gap_above
