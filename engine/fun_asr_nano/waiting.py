"""Pieces that wait for the encoder, taken from all calls in turn."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

from engine.fun_asr_nano.call import Piece


class FairQueue:
    """A queue a call, and the calls in a ring: a short call stands behind one piece of a long one, not behind all."""

    def __init__(self) -> None:
        self._calls: dict[int, deque[Piece]] = {}
        self._count = 0
        self.rows = 0
        """Encoder rows of all that waits."""

    def __len__(self) -> int:
        return self._count

    def add(self, piece: Piece) -> None:
        self._calls.setdefault(piece.call.id, deque()).append(piece)
        self._changed(piece, 1)

    def add_first(self, piece: Piece) -> None:
        """Put a piece in front of its call's others: it is part of one that had its turn."""
        self._calls.setdefault(piece.call.id, deque()).appendleft(piece)
        self._changed(piece, 1)

    def candidates(self, limit: int) -> list[Piece]:
        """The first `limit` pieces in the order in which they are due: one of each call, then a second of each ..."""
        rounds = itertools.zip_longest(*(itertools.islice(pieces, limit) for pieces in self._calls.values()))
        due = (piece for one_of_each in rounds for piece in one_of_each if piece is not None)
        return list(itertools.islice(due, limit))

    def take(self, pieces: Iterable[Piece]) -> None:
        """Remove pieces; the calls that they belong to go to the end of the ring."""
        for piece in pieces:
            own = self._calls.pop(piece.call.id)
            own.remove(piece)
            self._changed(piece, -1)
            if own:
                self._calls[piece.call.id] = own

    def drop(self, call_id: int) -> None:
        """Remove all pieces of a call."""
        for piece in self._calls.pop(call_id, ()):
            self._changed(piece, -1)

    def _changed(self, piece: Piece, by: int) -> None:
        self._count += by
        self.rows += by * piece.rows
