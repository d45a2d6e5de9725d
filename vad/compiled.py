"""Machine code for the frame loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of numbers and arrays with numba when it is first called.

    The result is kept in numba's cache on disk. numba itself is imported with the first call too, so that importing
    this package stays quick; where no cache directory can be written, every process compiles anew.
    """

    @functools.cache
    def machine_code() -> Callable[P, R]:
        import numba

        try:
            return cast(Callable[P, R], numba.njit(cache=True)(function))
        except RuntimeError:  # "no locator available": the disk is read-only
            return cast(Callable[P, R], numba.njit(function))

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> R:
        return machine_code()(*arguments, **options)

    return cast(Callable[P, R], call)
