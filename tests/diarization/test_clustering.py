from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from audio.span import Span
from diarization import clustering
from diarization.agglomeration import agglomerate
from diarization.clustering import Labels, WindowSequence, best_path, cluster
from diarization.embedding import FBANK_CALIBRATION, GE2E_CALIBRATION, SpeakerEmbedder
from diarization.windows import cut, windows_of
from tests.diarization.conftest import VOICES

Points = NDArray[np.float32]


def unit(rows: NDArray[np.floating]) -> Points:
    scaled: Points = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def sequence(points: Points) -> WindowSequence:
    """Windows of one span."""
    count = max(0, len(points) - 1)
    return WindowSequence(unit(points), np.ones(count, bool), np.full(count, -0.75))


def voices(truth: Labels, seed: int = 0, within: float = 0.7) -> Points:
    """Points around one random direction for each voice; two of one voice have a cosine of about `within`."""
    random = np.random.default_rng(seed)
    centres = unit(random.standard_normal((int(truth.max()) + 1, 192)))
    noise = unit(random.standard_normal((len(truth), 192)))
    return unit(np.sqrt(within) * centres[truth] + np.sqrt(1 - within) * noise)


def turns(count: int, speakers: int, seed: int = 0) -> Labels:
    """Labels of windows in turns of 3 to 12."""
    random = np.random.default_rng(seed)
    parts: list[int] = []
    while len(parts) < count:
        choices = [speaker for speaker in range(speakers) if not parts or speaker != parts[-1]] or [0]
        parts += [int(random.choice(choices))] * int(random.integers(3, 13))
    return np.array(parts[:count])


def same_partition(one: Labels, other: Labels) -> bool:
    return (
        len(set(zip(one.tolist(), other.tolist(), strict=True))) == len(set(one.tolist())) == len(set(other.tolist()))
    )


@pytest.mark.parametrize(("speakers", "count"), [(1, 3), (1, 200), (2, 14), (3, 60), (5, 200), (8, 600)])
def test_finds_the_voices(speakers: int, count: int) -> None:
    truth = turns(count, speakers)
    labels = cluster(sequence(voices(truth)), FBANK_CALIBRATION)
    assert same_partition(labels, clustering.in_order(truth))


def test_no_window_and_one_window() -> None:
    assert cluster(sequence(np.zeros((0, 8), np.float32)), GE2E_CALIBRATION).tolist() == []
    assert cluster(sequence(np.ones((1, 8), np.float32)), GE2E_CALIBRATION).tolist() == [0]
    assert cluster(sequence(np.ones((1, 8), np.float32)), GE2E_CALIBRATION, fewest=3).tolist() == [0]


@pytest.mark.parametrize("asked", [1, 2, 3, 5, 8])
def test_count_is_obeyed(asked: int) -> None:
    points = voices(turns(100, 3))
    labels = cluster(sequence(points), FBANK_CALIBRATION, fewest=asked, most=asked)
    assert sorted(set(labels.tolist())) == list(range(asked))


def test_bounds_are_obeyed() -> None:
    points = sequence(voices(turns(100, 3)))
    assert cluster(points, FBANK_CALIBRATION, fewest=2, most=5).max() == 2
    assert cluster(points, FBANK_CALIBRATION, fewest=4).max() == 3
    assert cluster(points, FBANK_CALIBRATION, most=2).max() == 1


def test_windows_that_are_all_the_same_still_fall_into_as_many_as_asked() -> None:
    labels = cluster(sequence(np.ones((9, 16), np.float32)), GE2E_CALIBRATION, fewest=3, most=3)
    assert sorted(set(labels.tolist())) == [0, 1, 2]


def test_labels_appear_in_order_and_are_always_the_same() -> None:
    points = sequence(voices(turns(300, 4, seed=3), within=0.55))
    labels = cluster(points, FBANK_CALIBRATION)
    first = [labels.tolist().index(label) for label in range(int(labels.max()) + 1)]
    assert first == sorted(first)
    assert all(np.array_equal(labels, cluster(points, FBANK_CALIBRATION)) for _ in range(3))


def test_windows_between_two_voices_are_no_third() -> None:
    """At every change lies a window that holds both voices."""
    truth = turns(120, 2)
    points = voices(truth)
    changes = np.flatnonzero(np.diff(truth))
    points[changes] = unit(points[changes - 1] + points[changes + 1])
    assert cluster(sequence(points), FBANK_CALIBRATION).max() == 1


@pytest.mark.field("D5")
@pytest.mark.parametrize(("hours", "speakers"), [(1, 4), (5, 6)])
def test_long_recordings_are_clustered_in_bounded_memory(hours: int, speakers: int) -> None:
    """Cosines of all pairs would take 92 MB for an hour, 2.3 GB for five: only a part of the windows is compared."""
    truth = turns(4800 * hours, speakers)
    points = sequence(voices(truth))
    tracemalloc.start()
    labels = cluster(points, FBANK_CALIBRATION)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert same_partition(labels, clustering.in_order(truth))
    assert peak < 40e6 + points.embeddings.nbytes


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_joined_as_one_by_one(seed: int) -> None:
    """Against the definition: the largest mean cosine of two groups first."""
    random = np.random.default_rng(seed)
    points = voices(turns(int(random.integers(2, 50)), 3, seed), seed, within=float(random.uniform(0.2, 0.9)))
    threshold, groups = float(random.uniform(-0.2, 0.8)), int(random.integers(1, 5))
    slow = [[number] for number in range(len(points))]
    while len(slow) > groups:
        means = np.array([[float((points[one] @ points[other].T).mean()) for other in slow] for one in slow])
        np.fill_diagonal(means, -np.inf)
        i, j = sorted(divmod(int(means.argmax()), len(slow)))
        if means[i, j] < threshold:
            break
        slow[i] = slow[i] + slow[j]
        del slow[j]
    expected = np.empty(len(points), np.int64)
    for number, members in enumerate(slow):
        expected[members] = number
    assert same_partition(agglomerate(points, threshold=threshold, groups=groups), expected)


@pytest.fixture(scope="module")
def heard(embedder: SpeakerEmbedder, speech: Callable[[str, float], Points]) -> Mapping[str, Points]:
    """Embeddings of the windows of each voice in tests/data."""
    found = {}
    for voice in VOICES:
        waveform = speech(voice, 10.9)
        found[voice] = embedder(cut(waveform, windows_of([Span(0.0, 10.9)], len(waveform))))
    return found


def drawn(heard: Mapping[str, Points], truth: Labels, random: np.random.Generator) -> Points:
    """Windows with the mean and the covariance of each recorded voice; for a fourth, the dimensions of the first turned
    round."""
    pools = [*heard.values(), heard["kennedy"][:, ::-1]]
    rows = np.empty((len(truth), pools[0].shape[1]))
    for voice, pool in enumerate(pools):
        mean = pool.mean(0)
        at = np.flatnonzero(truth == voice)
        weights = random.standard_normal((len(at), len(pool))) / np.sqrt(len(pool) - 1)
        rows[at] = mean + weights @ (pool - mean)
    return unit(rows)


@pytest.mark.field("D5")
def test_an_hour_has_the_speakers_of_its_first_ten_minutes(heard: Mapping[str, Points]) -> None:
    truth = turns(4800, 4, seed=5)
    points = drawn(heard, truth, np.random.default_rng(7))
    hour, start = cluster(sequence(points), GE2E_CALIBRATION), cluster(sequence(points[:800]), GE2E_CALIBRATION)
    assert hour.max() == start.max() == 3
    assert np.mean(hour != clustering.in_order(truth)) < 0.02
    assert np.mean(start != hour[:800]) < 0.02


def test_agglomeration_is_average_linkage() -> None:
    """Against the definition, on random points: always join the two groups of the largest mean cosine."""
    for seed in range(5):
        points = unit(np.random.default_rng(seed).standard_normal((25, 6)))
        groups = [[number] for number in range(25)]
        alike = points @ points.T
        while len(groups) > 4:
            pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
            i, j = max(pairs, key=lambda pair: alike[np.ix_(groups[pair[0]], groups[pair[1]])].mean())
            groups[i] += groups.pop(j)
        labels = agglomerate(points, groups=4)
        expected = np.empty(25, np.int64)
        for number, members in enumerate(groups):
            expected[members] = number
        assert same_partition(labels, expected)


def test_agglomeration_stops_at_the_threshold() -> None:
    points = unit(np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]]))
    assert agglomerate(points, threshold=0.9).tolist() == [0, 0, 1, 1]
    assert agglomerate(points, threshold=1.1).tolist() == [0, 1, 2, 3]
    assert agglomerate(points, threshold=-1.0).tolist() == [0, 0, 0, 0]


def test_best_path_equals_trying_all() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        scores = random.random((6, 3)).astype(np.float32)
        switch = random.choice([0.0, 0.2, 0.6], 5)
        paths = np.stack(np.meshgrid(*[np.arange(3)] * 6, indexing="ij"), -1).reshape(-1, 6)
        totals = scores[np.arange(6), paths].sum(1) - ((paths[:, 1:] != paths[:, :-1]) * switch).sum(1)
        assert best_path(scores, switch).tolist() == paths[totals.argmax()].tolist()
