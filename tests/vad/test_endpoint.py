from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from numpy.typing import NDArray

from vad import endpoint
from vad.compat import CompatOptions, offline
from vad.schedule import Schedule


def plain_machine(speech: list[bool], silence_ms: int, cap: int) -> list[list[int]]:
    """The published state machine, one branch a rule, for a file in one chunk; frames [start, end)."""
    window: deque[bool] = deque([False] * 20, maxlen=20)
    talking = is_open = False
    floor = start = end = pause = 0
    segments: list[list[int]] = []
    for i, frame in enumerate(speech):
        window.append(frame)
        was, count = talking, sum(window)
        talking = count > 15 if was else count >= 15
        over = is_open and i - start + 1 > cap
        closed = None
        if talking or was:
            pause = 0
            if talking and not was and not is_open:
                is_open, start, end, floor = True, max(floor, i - 40), i + 1, i + 1
            elif is_open:
                end = i + 1
                closed = i if over or i == len(speech) - 1 else None
        else:
            pause += 1
            if is_open and pause * 10 >= silence_ms:
                closed = i - max(0, silence_ms // 10 - 11)
            elif is_open and (over or i == len(speech) - 1):
                closed = i
            elif is_open and pause <= 10:
                end = i + 1
            elif not is_open and i >= 40:
                floor = max(floor, i - 40)
        if closed is not None:
            segments.append([start, closed + 1])
            floor, is_open, talking, pause = closed + 1, False, False, 0
            window.extend([False] * 20)
    if is_open:
        segments.append([start, end])
    return segments


def random_decisions(seed: int, frames: int) -> NDArray[np.bool_]:
    """Runs of speech and silence of all lengths, with single frames flipped."""
    random = np.random.default_rng(seed)
    lengths = random.geometric(1 / random.choice([4, 15, 60, 200]), frames)
    speech = np.repeat(np.arange(frames) % 2 == seed % 2, lengths)[:frames]
    return speech ^ (random.random(frames) < random.choice([0, 0.02, 0.15]))


@pytest.mark.parametrize("seed", range(200))
def test_machine_follows_the_published_rules(seed: int) -> None:
    random = np.random.default_rng(1000 + seed)
    speech = random_decisions(seed, int(random.integers(1, 3000)))
    silence_ms, cap = int(random.choice([100, 150, 200, 255, 400, 800, 2000])), int(random.choice([50, 300, 6000]))
    options = CompatOptions(silence_ms=silence_ms, max_segment_ms=cap * 10, speech_threshold=0.5)
    found = offline(np.where(speech, 0, 1).astype(np.float32), len(speech) * 160 + 240, options, chunk_ms=60_000)
    expected = plain_machine(speech.tolist(), max(0, silence_ms - 150), cap)
    assert found == [[start * 10, end * 10] for start, end in expected]


def test_decisions_at_the_threshold_and_at_certainty() -> None:
    scores = np.array([0.0, 0.2, 0.25, 0.2500001, 1.0], np.float32)
    assert endpoint.is_speech(scores, 0.5).tolist() == [True, True, True, False, False]
    assert endpoint.is_speech(scores, 0.6).tolist() == [True, True, False, False, False]


def test_calling_again_and_again_changes_nothing() -> None:
    pauses = endpoint.pause_table(Schedule.fixed(500))
    speech = np.concatenate([np.arange(500) >= 100, np.zeros(200), random_decisions(5, 1300)]).astype(np.bool_)

    def events(stops: list[int]) -> list[tuple[int, int]]:
        pointer = endpoint.Endpointer(speech.copy(), limit=300)
        seen: list[tuple[int, int]] = []
        for stop in stops:
            while event := pointer.advance(stop, pauses):
                seen.append((event, pointer.next))
                if event != endpoint.STARTED:
                    pointer.close(pointer.next, forget=True)
        return seen

    whole = events([2000])
    assert {event for event, _ in whole} == {endpoint.STARTED, endpoint.PAUSED, endpoint.FULL}
    assert events(list(range(1, 2001))) == whole
    assert events([0, 7, 7, 1500, 2000, 2000]) == whole


def test_pause_table_rounds_to_frames() -> None:
    table = endpoint.pause_table(Schedule(((10_000, 2000), (20_005, 155), (None, 0))))
    assert table[:, 1].tolist() == [185, 1, 0]
    assert table[:2, 0].tolist() == [1000, 2000]
