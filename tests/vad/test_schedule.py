from __future__ import annotations

import pytest

from vad.schedule import OFFLINE, STREAMING, Schedule


@pytest.mark.parametrize(
    ("schedule", "running_ms", "silence_ms"),
    [
        (OFFLINE, 0, 2000),
        (OFFLINE, 10_000, 2000),
        (OFFLINE, 10_001, 1000),
        (OFFLINE, 30_000, 800),
        (OFFLINE, 35_000, 600),
        (OFFLINE, 50_000, 400),
        (OFFLINE, 60_000, 200),
        (OFFLINE, 10**9, 100),
        (STREAMING, 5_000, 2000),
        (STREAMING, 15_000, 1000),
        (STREAMING, 45_001, 100),
        (Schedule.fixed(700), 10**9, 700),
    ],
)
def test_rows(schedule: Schedule, running_ms: int, silence_ms: int) -> None:
    assert schedule.silence_ms(running_ms) == silence_ms


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "0 rows"),
        (((1.0, 500),) * 65, "65 rows"),
        (((5.0, 500),), "last row"),
        (((None, 500), (None, 300)), "row 1: limit None"),
        (((5.0, 500), (5.0, 400), (None, 300)), "row 2: limit 5000 ms, it must be above 5000"),
        (((-1.0, 500), (None, 300)), "row 1: limit -1000 ms"),
        (((float("nan"), 500), (None, 300)), "row 1: limit nan"),
        (((float("inf"), 500), (None, 300)), "row 1: limit inf"),
        (((5.0, -1), (None, 300)), "row 1: silence -1 ms, allowed are 0 to 60000"),
        (((5.0, 500), (None, 60_001)), "row 2: silence 60001"),
    ],
)
def test_invalid_rows(rows: tuple[tuple[float | None, int], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.of_seconds(rows)
