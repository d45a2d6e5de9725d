from __future__ import annotations

import pytest

from engine.tally import BATCH_BOUNDS, ENCODER_CLIPS, Tally, batch_counter


@pytest.mark.parametrize(("clips", "place"), [(1, 0), (2, 1), (3, 2), (4, 2), (128, 7), (129, 8), (1000, 8)])
def test_a_batch_is_counted_at_the_first_bound_that_it_does_not_pass(clips: int, place: int) -> None:
    tally = Tally()
    tally.encoded(clips, 0.5)
    counted = [tally.counters[batch_counter(number)] for number in range(len(BATCH_BOUNDS) + 1)]
    assert counted == [float(number == place) for number in range(len(BATCH_BOUNDS) + 1)]
    assert tally.counters[ENCODER_CLIPS] == clips


def test_encoding_inside_of_other_work_counts_once() -> None:
    tally = Tally()
    with tally.timed("llm_seconds"):
        tally.encoded(1, 1000.0)
    assert tally.counters["encode_seconds"] == 1000.0
    assert tally.counters["llm_seconds"] < 0


def test_seconds_add_up() -> None:
    tally = Tally()
    with tally.timed("align_seconds"):
        pass
    once = tally.counters["align_seconds"]
    with tally.timed("align_seconds"):
        pass
    assert tally.counters["align_seconds"] > once > 0
