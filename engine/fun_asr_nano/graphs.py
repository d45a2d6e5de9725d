"""CUDA graphs of the encoder: a batch is one launch instead of two thousand, which bind it below a minute of sound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_log = logging.getLogger(__name__)

Forward = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor | None]]
"""From a padded batch, its lengths and the number of embeddings to embeddings and CTC rows."""

_ITEMS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_ROWS = (64, 96, 128, 192, 256, 384, 512)
"""Clips of 4 s to 30 s."""
_BOUND_ROWS = 6144
"""Rows up to which an H200 is done before the launches of the next batch are: more padding than work costs nothing."""
_WASTE = 1.5
"""Beyond that, padded rows over real ones that a graph may cost: the thread that launches has other things to do."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Items and rows that a graph was recorded for; smaller batches are padded to it."""

    items: int
    rows: int

    @property
    def size(self) -> int:
        return self.items * self.rows


def batch_shapes(max_size: int) -> tuple[BatchShape, ...]:
    """All shapes of up to `max_size` padded rows."""
    grid = (BatchShape(items, rows) for rows in _ROWS for items in _ITEMS)
    return tuple(shape for shape in grid if shape.size <= max_size)


def find_shape(shapes: Iterable[BatchShape], items: int, rows: int) -> BatchShape | None:
    """The smallest shape that holds a batch, None if there is none that is worth its padding."""
    fitting = [shape for shape in shapes if shape.items >= items and shape.rows >= rows]
    best = min(fitting, key=lambda shape: (shape.size, shape.rows), default=None)
    if best is None or best.size > max(_BOUND_ROWS, _WASTE * items * rows):
        return None
    return best


class EncoderGraphs:
    """A forward pass recorded for a number of batch shapes; one runs at a time, so they share their memory."""

    def __init__(self, captured: dict[BatchShape, _Captured]) -> None:
        self._captured = captured

    @classmethod
    def record(
        cls,
        forward: Forward,
        shapes: Iterable[BatchShape],
        *,
        width: int,
        tokens: Callable[[int], int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> EncoderGraphs:
        """Record graphs, the largest first; if the device refuses, there are none.

        Args:
            forward: must neither wait for the device nor have shapes that depend on data.
            width: of the rows of a batch.
            tokens: how many embeddings so many rows give.
        """
        ordered = sorted(shapes, key=lambda shape: -shape.size)
        captured: dict[BatchShape, _Captured] = {}
        if not ordered:
            return cls(captured)
        room = torch.zeros(ordered[0].size * width, dtype=dtype, device=device)
        pool = torch.cuda.graph_pool_handle()
        try:
            for shape in ordered:
                batch = room[: shape.size * width].view(shape.items, shape.rows, width)
                captured[shape] = _Captured(forward, batch, tokens(shape.rows), pool)
        except RuntimeError as error:
            _log.warning("the encoder runs without CUDA graphs: %s", " ".join(str(error).split())[:200])
            captured = {}
        return cls(captured)

    def find(self, items: int, rows: int) -> _Captured | None:
        """What to run a batch with, None where the plain forward pass is better."""
        shape = find_shape(self._captured, items, rows)
        return None if shape is None else self._captured[shape]


class _Captured:
    """One graph, and where its input and output lie."""

    def __init__(self, forward: Forward, batch: Tensor, tokens: int, pool: Any) -> None:
        self._batch = batch
        self._lengths = torch.full((len(batch),), batch.shape[1], device=batch.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode():
            _rehearse(forward, self._batch, self._lengths, tokens)
            with torch.cuda.graph(self._graph, pool=pool):
                self._embeddings, self._hidden = forward(self._batch, self._lengths, tokens)

    def __call__(self, batch: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Run a batch of (items, rows, width) with (items,) lengths, on the current stream."""
        items, rows = batch.shape[:2]
        self._batch[:items, :rows].copy_(batch)
        self._lengths[items:].fill_(1)
        self._lengths[:items].copy_(lengths)
        self._graph.replay()
        # The next graph writes over these.
        hidden = None if self._hidden is None else self._hidden[:items, :rows].clone()
        return self._embeddings[:items].clone(), hidden


def _rehearse(forward: Forward, batch: Tensor, lengths: Tensor, tokens: int) -> None:
    """Run once on a side stream: the libraries set up what must not be set up during a recording."""
    cuda: Any = torch.cuda
    stream = cuda.Stream(batch.device)
    stream.wait_stream(torch.cuda.current_stream(batch.device))
    with torch.cuda.stream(stream):
        forward(batch, lengths, tokens)
    torch.cuda.current_stream(batch.device).wait_stream(stream)
