from __future__ import annotations

import random

import pytest

from engine.fun_asr_nano.batching import next_batch


def drain(lengths: list[int], **caps: int) -> list[list[int]]:
    waiting, batches = list(enumerate(lengths)), []
    while waiting:
        chosen = next_batch([length for _, length in waiting], **caps)
        batches.append([waiting[index][0] for index in chosen])
        waiting = [item for index, item in enumerate(waiting) if index not in set(chosen)]
    return batches


def test_every_segment_goes_once_and_the_caps_hold() -> None:
    random.seed(0)
    for _ in range(50):
        lengths = [random.randint(1, 1000) for _ in range(random.randint(1, 80))]
        batches = drain(lengths, max_rows=4000, max_items=16)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        for batch in batches:
            assert len(batch) <= 16
            assert max(lengths[index] for index in batch) * len(batch) <= 4000


def test_the_oldest_goes_first() -> None:
    assert 0 in next_batch([5, *[500] * 100], max_rows=2000, max_items=4)
    assert 0 in next_batch([500, *[5] * 100], max_rows=2000, max_items=4)


def test_neighbours_in_length_go_along() -> None:
    assert next_batch([100, 900, 101, 10, 99], max_rows=10_000, max_items=3) == [2, 0, 4]


def test_little_is_padded_when_many_wait() -> None:
    random.seed(1)
    lengths = [random.randint(20, 500) for _ in range(400)]

    def waste(batches: list[list[int]]) -> int:
        return sum(max(lengths[index] for index in batch) * len(batch) for batch in batches) - sum(lengths)

    arrival = [list(range(start, min(start + 32, 400))) for start in range(0, 400, 32)]
    assert waste(drain(lengths, max_rows=16_000, max_items=32)) < 0.2 * waste(arrival)


@pytest.mark.parametrize(("lengths", "expected"), [([], []), ([9999], [0]), ([9999, 9999], [0])])
def test_nothing_and_what_is_too_long_for_company(lengths: list[int], expected: list[int]) -> None:
    assert next_batch(lengths, max_rows=1000, max_items=8) == expected
