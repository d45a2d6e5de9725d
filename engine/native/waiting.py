"""Pieces that wait for the engine, taken from all calls in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.native.call import Piece


class FairQueue:
    """A queue a call, and the calls in a ring: a short call stands behind one piece of a long one, not behind all."""

    def __init__(self) -> None:
        self._calls: dict[int, deque[Piece]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __len__(self) -> int:
        return sum(len(pieces) for pieces in list(self._calls.values()))

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._calls.setdefault(piece.call.id, deque()).append(piece)

    def add_first(self, pieces: Iterable[Piece]) -> None:
        """Put pieces, in order, before all others: they are parts of one that had its turn."""
        for piece in reversed(list(pieces)):
            own = self._calls.pop(piece.call.id, deque())
            own.appendleft(piece)
            self._calls = {piece.call.id: own, **self._calls}

    def take(self) -> Piece:
        """The next piece; its call goes to the end of the ring."""
        call_id = next(iter(self._calls))
        own = self._calls.pop(call_id)
        piece = own.popleft()
        if own:
            self._calls[call_id] = own
        return piece

    def drop(self, call_id: int) -> None:
        """Remove all pieces of a call."""
        self._calls.pop(call_id, None)
