from __future__ import annotations

import numpy as np
import pytest

from vad.quietest import quietest_boundary


def test_a_pause_beats_a_deeper_but_shorter_dip() -> None:
    level = np.full(300, -20, np.float32)
    level[100:115] = -50
    level[200:203] = -60
    assert 102 <= quietest_boundary(level, np.zeros(300, np.float32)) <= 113


def test_the_deepest_point_of_the_pause() -> None:
    level = np.full(300, -20, np.float32)
    level[100:120] = np.abs(np.arange(-10, 10)) - 50
    assert quietest_boundary(level, np.zeros(300, np.float32)) == pytest.approx(110, abs=1)


def test_the_network_breaks_ties_of_level() -> None:
    silence = np.zeros(300, np.float32)
    silence[150:170] = 0.9
    assert 150 <= quietest_boundary(np.full(300, -20, np.float32), silence) <= 170


def test_digital_silence_of_a_lost_packet_does_not_beat_a_pause() -> None:
    level = np.full(300, -20, np.float32)
    level[100:112] = -55
    level[200] = -100
    assert 102 <= quietest_boundary(level, np.zeros(300, np.float32)) <= 112


def test_constant_sound_is_cut_late() -> None:
    noise = np.random.default_rng(0).uniform(-1e-5, 1e-5, 300)
    boundary = quietest_boundary((noise - 20).astype(np.float32), np.zeros(300, np.float32))
    assert 295 <= boundary <= 300


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 19, 20, 21, 22])
def test_few_frames(frames: int) -> None:
    assert 0 < quietest_boundary(np.full(frames, -30, np.float32), np.zeros(frames, np.float32)) <= frames
