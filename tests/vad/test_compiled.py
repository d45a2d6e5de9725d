from __future__ import annotations

from typing import Any

import numba
import pytest

from vad.compiled import compiled


def test_without_a_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def read_only(*arguments: Any, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*arguments, **options)

    monkeypatch.setattr(numba, "njit", read_only)

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42
