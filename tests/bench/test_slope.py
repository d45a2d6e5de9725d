from __future__ import annotations

import math

import pytest

from bench.slope import Slope


def test_a_straight_line_has_its_slope_without_doubt() -> None:
    slope = Slope.of([(x / 10, 3.0 * x / 10 + 7.0) for x in range(40)])
    assert slope.value == pytest.approx(3.0)
    assert slope.margin == pytest.approx(0.0, abs=1e-6)
    assert slope.rises


def test_noise_around_a_level_does_not_rise() -> None:
    slope = Slope.of([(x / 40, 1500.0 + 5.0 * (-1) ** x) for x in range(40)])
    assert abs(slope.value) < slope.margin
    assert not slope.rises


def test_what_falls_does_not_rise() -> None:
    assert not Slope.of([(float(x), -2.0 * x) for x in range(10)]).rises


def test_two_points_say_nothing() -> None:
    assert Slope.of([(0.0, 0.0), (1.0, 100.0)]) == Slope(0.0, math.inf)
