"""Words as columns: they cross processes for a fraction of the cost, and become objects only where they are read."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

from engine.recognition import Word


class PackedWords(Sequence[Word]):
    """The words of a hypothesis; equal to any sequence of the same words."""

    __slots__ = ("_ends", "_interpolated", "_starts", "_texts")

    def __init__(self, texts: tuple[str, ...], starts: array[float], ends: array[float], interpolated: bytes) -> None:
        """A column each: `starts` and `ends` as doubles, `interpolated` a byte a word."""
        self._texts = texts
        self._starts = starts
        self._ends = ends
        self._interpolated = interpolated

    @classmethod
    def of(cls, words: Sequence[Word]) -> PackedWords:
        return cls(
            tuple([word.text for word in words]),
            array("d", [word.start for word in words]),
            array("d", [word.end for word in words]),
            bytes([word.interpolated for word in words]),
        )

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Word]:
        return map(Word, self._texts, self._starts, self._ends, map(bool, self._interpolated))

    @overload
    def __getitem__(self, index: int) -> Word: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Word]: ...
    def __getitem__(self, index: int | slice) -> Word | Sequence[Word]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedWords):
            return self.__reduce__() == other.__reduce__()
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PackedWords{tuple(self)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedWords, (self._texts, self._starts, self._ends, self._interpolated)
