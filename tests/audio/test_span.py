"""The clock."""

from __future__ import annotations

import pytest

from audio.span import SAMPLE_RATE, Span, to_samples, to_seconds


@pytest.mark.parametrize("samples", [0, 1, 159, 160, 48_000, SAMPLE_RATE * 3600 * 24 + 1])
def test_samples_survive_the_way_to_seconds_and_back(samples: int) -> None:
    assert to_samples(to_seconds(samples)) == samples


def test_the_nearest_sample_counts() -> None:
    assert to_samples(0.1) == 1_600
    assert to_samples(1.00004) == 16_001
    assert to_samples(1.00002) == 16_000


def test_a_span_cuts_a_waveform() -> None:
    span = Span(0.25, 1.0)
    assert span.duration == 0.75
    assert span.slice() == slice(4_000, 16_000)


def test_adjoining_spans_share_no_sample_and_leave_none_out() -> None:
    cut = 1.23456789
    assert Span(0.0, cut).slice().stop == Span(cut, 2.0).slice().start
