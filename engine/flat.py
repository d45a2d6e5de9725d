"""Dataclasses that travel quickly: pickled as their values in order, and made again by their constructor.

The state that Python pickles for a frozen dataclass with slots asks for its fields one by one, at both ends; for an
answer with word times that takes longer than all the rest of handing it over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any


class Flat:
    """Base of dataclasses of two fields and more whose constructor takes them all in order."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]:
        kind: Any = type(self)
        return kind, _values_of(kind)(self)


@functools.cache
def _values_of(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*(field.name for field in fields(kind)))
