"""Which recorded shape a batch is padded to; the recordings themselves need a GPU."""

from __future__ import annotations

import pytest

from engine.fun_asr_nano.graphs import BatchShape, batch_shapes, find_shape

SHAPES = batch_shapes(16384)


@pytest.mark.parametrize(
    ("items", "rows", "shape"),
    [
        (1, 1, BatchShape(1, 64)),
        (1, 500, BatchShape(1, 512)),
        (3, 100, BatchShape(4, 128)),
        (20, 79, BatchShape(24, 96)),
        (32, 500, BatchShape(32, 512)),
        (120, 90, BatchShape(128, 96)),
        (1, 513, None),
        (40, 500, None),
        (100, 65, None),
    ],
)
def test_the_smallest_that_holds_it_unless_padding_costs_too_much(
    items: int, rows: int, shape: BatchShape | None
) -> None:
    assert find_shape(SHAPES, items, rows) == shape


def test_shapes_keep_to_the_limit() -> None:
    assert max(shape.size for shape in SHAPES) == 16384
    assert batch_shapes(10) == ()
    assert find_shape((), 1, 1) is None
