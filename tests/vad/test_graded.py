from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from audio.span import Span
from vad.graded import GradedSegments
from vad.options import SegmentationOptions
from vad.schedule import OFFLINE, Schedule
from vad.scoring import Scorer
from vad.segmenter import Segmenter

Waveform = NDArray[np.float32]
Named = Callable[[str], Waveform]


def scores_of(decisions: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.where(decisions, 0.05, 0.95).astype(np.float32)


def speech_like(decisions: Sequence[bool] | NDArray[np.bool_], seed: int = 0) -> Waveform:
    """Noise where the decisions say speech, zeros elsewhere; as long as that many frames need."""
    random = np.random.default_rng(seed)
    gain = np.append(np.repeat(np.asarray(decisions, np.float32), 160), np.zeros(240, np.float32))
    return (0.1 * gain * random.standard_normal(len(gain))).astype(np.float32)


def segment(
    decisions: NDArray[np.bool_],
    schedule: Schedule = OFFLINE,
    limit: int = 16000 * 60,
    stops: Sequence[int] = (),
) -> list[Span]:
    waveform = speech_like(decisions)
    scorer_levels = levels(waveform)
    segments = GradedSegments(waveform, schedule, limit, 0.5)
    for stop in [*stops, len(decisions)]:
        known = np.where(np.arange(len(decisions)) < stop, scores_of(decisions), np.nan).astype(np.float32)
        last = len(scorer_levels) if stop == len(decisions) else stop
        segments.follow(known, np.append(scorer_levels[:last], np.full(len(scorer_levels) - last, np.nan)), stop)
    return segments.spans


def levels(waveform: Waveform) -> NDArray[np.float32]:
    blocks = np.array_split(waveform, range(160, len(waveform), 160))
    return np.array([10 * np.log10(max(1e-10, float(np.mean(block**2)))) for block in blocks], np.float32)


def runs(*lengths: int, first: bool = True) -> NDArray[np.bool_]:
    """Frames of speech, silence, speech ... in turn."""
    return np.repeat([first ^ bool(number % 2) for number in range(len(lengths))], lengths)


def ms(spans: Sequence[Span]) -> list[tuple[int, int]]:
    return [(round(span.start * 1000), round(span.end * 1000)) for span in spans]


@pytest.mark.parametrize(
    ("spoken_s", "pause_ms", "cut"),
    [
        (5, 1700, False),
        (5, 2100, True),
        (12, 700, False),
        (12, 1100, True),
        (22, 500, False),
        (22, 900, True),
        (35, 300, False),
        (35, 700, True),
        (45, 140, False),
        (45, 500, True),
        (52, 40, False),
        (52, 300, True),
    ],
)
def test_the_allowed_silence_shrinks(spoken_s: int, pause_ms: int, cut: bool) -> None:
    # By the published rule a pause counts from its 50th millisecond to the 140th of the speech behind it, and the
    # silence of a row is taken less 150 ms: 240 ms below a row are on the safe side.
    spans = segment(runs(spoken_s * 100, pause_ms // 10, 300))
    assert len(spans) == (2 if cut else 1)


def test_the_schedule_looks_at_the_length_during_the_pause() -> None:
    # 9 s of speech allow 2000 ms, but after 10 s only 1000 ms: the pause is over the moment the segment is 10 s long.
    (first, second) = segment(runs(900, 150, 300))
    assert first.end == pytest.approx(9.15, abs=0.03)  # 100 ms of the pause, and what the window takes to see it
    assert second.start == pytest.approx(10.25, abs=0.05)  # 150 ms to decide, 400 ms back


def test_fixed_silence() -> None:
    decisions = runs(500, 60, 500, 60, 5000, 60, 500)
    assert len(segment(decisions, Schedule.fixed(500))) == 4
    assert len(segment(decisions, Schedule.fixed(900), 16000 * 100)) == 1


def test_full_segment_is_cut_in_its_last_third_and_goes_on_at_once() -> None:
    decisions = runs(2500, 8, 500, 6, 5000)  # dips of 80 and 60 ms are no pauses
    spans = segment(decisions, limit=16000 * 30)
    assert ms(spans)[0] == (0, pytest.approx(25_040, abs=30))
    assert all(before.end == after.start for before, after in itertools.pairwise(spans))
    assert spans[-1].end == len(speech_like(decisions)) / 16000


def test_segment_of_exactly_the_limit_is_not_cut() -> None:
    waveform = speech_like(runs(3000))[: 3000 * 160]
    frames = 1 + (len(waveform) - 400) // 160
    for limit, pieces in ((len(waveform), 1), (len(waveform) - 160, 2)):
        segments = GradedSegments(waveform, OFFLINE, limit, 0.5)
        segments.follow(np.zeros(frames, np.float32), levels(waveform), frames)
        assert len(segments.spans) == pieces
        assert segments.spans[-1].end == 30.0


def test_cut_into_a_pause_leaves_no_segment_of_silence() -> None:
    # The limit comes inside the pause that goes on to the end.
    spans = segment(runs(990, 400), limit=16000 * 10)
    assert len(spans) == 1
    assert spans[0].duration <= 10


def test_certain_scores() -> None:
    decisions = runs(300, 300, 300)
    waveform = speech_like(decisions)
    segments = GradedSegments(waveform, OFFLINE, 960_000, 0.5)
    segments.follow(np.where(decisions, 0, 1).astype(np.float32), levels(waveform), len(decisions))
    assert len(segments.spans) == 2


@pytest.mark.parametrize("seed", range(60))
def test_random_decisions(seed: int) -> None:
    """Whatever the scores: in order, no overlap, inside the file, never too long, no run of speech lost."""
    random = np.random.default_rng(seed)
    frames = int(random.integers(1, 6000))
    lengths = random.geometric(1 / random.choice([5, 20, 80, 300]), frames)
    decisions = np.repeat(np.arange(frames) % 2 == 0, lengths)[:frames]
    seconds = float(random.choice([1, 1.234, 5, 30, 60]))
    schedule = [OFFLINE, Schedule.fixed(0), Schedule.fixed(400), Schedule(((3000, 900), (None, 100)))][seed % 4]
    limit = round(seconds * 16000)

    spans = segment(decisions, schedule, limit)

    duration = (frames * 160 + 240) / 16000
    edges = [edge for span in spans for edge in (span.start, span.end)]
    assert edges == sorted(edges)
    assert all(span.duration > 0 and span.slice().stop - span.slice().start <= limit for span in spans)
    assert not spans or (spans[0].start >= 0 and spans[-1].end <= duration)
    covered = np.zeros(frames + 2, np.bool_)
    for span in spans:
        covered[round(span.start * 100) : round(span.end * 100)] = True
    edge = np.flatnonzero(np.diff(np.concatenate([[0], decisions.astype(int), [0]])))
    for first, last in edge.reshape(-1, 2):
        if last - first >= 20:
            assert covered[first:last].all(), (first, last)

    stops = sorted(random.integers(0, frames, 5).tolist())
    assert segment(decisions, schedule, limit, stops) == spans


def test_last_samples_belong_to_the_last_segment(segmenter: Segmenter, waveform: Named) -> None:
    for name in ("jfk", "austen-0870", "goforward", "nano-29.7s"):
        samples = waveform(name)
        assert segmenter.segments(samples)[-1].end == len(samples) / 16000
        assert segmenter.segments(samples[:-77])[-1].slice().stop == len(samples) - 77


def test_gap(segmenter: Segmenter, waveform: Named) -> None:
    for name in ("gap-20s", "gap-20s-noise"):
        first, second = segmenter.segments(waveform(name))
        assert (first.start, second.end) == (0.0, 33.15)
        assert 7.05 <= first.end <= 7.3
        assert 26.9 <= second.start <= 27.35


def test_recordings_with_long_pauses_are_cut_there(segmenter: Segmenter, waveform: Named) -> None:
    samples = waveform("joined-180s")
    spans = segmenter.segments(samples)
    assert len(spans) > 8
    assert max(span.duration for span in spans) < 60
    outside = np.ones(len(samples), np.bool_)
    for span in spans:
        outside[span.slice()] = False
    quiet, loud = np.median(levels(samples[outside])), np.median(levels(samples[~outside]))
    assert quiet < loud - 30


@pytest.mark.parametrize("name", ["continuous-70s", "continuous-130s"])
@pytest.mark.parametrize("limit", [60.0, 30.0, 12.5])
def test_speech_without_pauses_is_cut_between_words(
    name: str, limit: float, segmenter: Segmenter, waveform: Named
) -> None:
    samples = waveform(name)
    spans = segmenter.segments(samples, SegmentationOptions(max_segment_seconds=limit))
    assert spans[0].start == 0
    assert spans[-1].end == len(samples) / 16000
    energy = levels(samples)
    for span, following in itertools.pairwise(spans):
        assert span.duration <= limit
        assert span.end == following.start
        cut = round(span.end * 100)
        assert span.end * 100 == pytest.approx(cut, abs=1e-6)
        # 40 ms around the cut are as quiet as any in the 0.2 s around it, and far below the speech near by.
        smooth = np.convolve(energy, np.full(4, 0.25), "same")
        assert smooth[cut] <= smooth[cut - 8 : cut + 9].min() + 3
        assert smooth[cut] <= np.percentile(energy[cut - 500 : cut + 500], 25)


@pytest.mark.field("B7")
def test_no_pause_before_the_limit_65_seconds(segmenter: Segmenter, waveform: Named) -> None:
    # No pause that the schedule would take, so the only cut is a forced one.
    samples = waveform("continuous-70s")[: 65 * 16000]
    options = SegmentationOptions(fixed_silence_ms=800)
    first, second = segmenter.segments(samples, options)
    assert 50 <= first.end == second.start <= 60
    assert second.end == 65


@pytest.mark.field("B1")
def test_sounds_that_are_not_speech(segmenter: Segmenter, waveform: Named) -> None:
    seconds = np.arange(160_000) / 16000
    random = np.random.default_rng(1)
    hum = sum(0.05 / k * np.sin(2 * np.pi * 50 * k * seconds) for k in range(1, 8))
    sounds = {
        "zeros": np.zeros(160_000),
        "noise at -60 dBFS": 0.001 * random.standard_normal(160_000),
        "50 Hz hum": 0.1 * np.sin(2 * np.pi * 50 * seconds),
        "50 Hz hum with harmonics": hum,
        "quiet noise": waveform("noise-10s"),
        "loud noise": waveform("noise-loud-10s"),
        "click": waveform("click-0.01s"),
    }
    for name, samples in sounds.items():
        for limit in (60.0, 1.0):
            options = SegmentationOptions(max_segment_seconds=limit)
            assert segmenter.segments(np.asarray(samples, np.float32), options) == [], name


@pytest.mark.field("A12")
@pytest.mark.parametrize("hertz", [50, 100, 200, 250, 300, 350, 400, 440, 480, 700, 1000, 3000])
def test_tones(hertz: int, segmenter: Segmenter) -> None:
    seconds = np.arange(40_000) / 16000
    tone = (0.3 * np.sin(2 * np.pi * hertz * seconds)).astype(np.float32)
    silence = np.zeros(24_000, np.float32)
    for samples in (160, 4000, 40_000):
        assert segmenter.segments(tone[:samples]) == []
        assert segmenter.segments(np.concatenate([silence, tone[:samples], silence])) == []


def syllables(samples: Waveform) -> list[int]:
    """Centres of up to four of the loudest 0.2 s, half a second apart, none much softer than the loudest."""
    power = np.convolve(samples**2, np.ones(3200) / 3200, "same")
    power[:2400] = power[len(power) - 2400 :] = 0
    found: list[int] = []
    loudest = power.max()
    while len(found) < 4 and power.max() > 0.2 * loudest:
        centre = int(power.argmax())
        found.append(centre)
        power[max(0, centre - 8000) : centre + 8000] = 0
    return found


@pytest.mark.field("A12")
@pytest.mark.parametrize("name", ["numbers", "goforward", "something", "cards-005", "austen-0870", "jfk", "ivr-main"])
@pytest.mark.parametrize("length_ms", [120, 150, 200, 250, 300])
def test_short_words_are_not_dropped(name: str, length_ms: int, segmenter: Segmenter, waveform: Named) -> None:
    samples, half = waveform(name), length_ms * 8
    for centre in syllables(samples)[: 1 if length_ms < 200 else 4]:  # softer ones are shorter, too
        word = samples[centre - half : centre + half]
        (span,) = segmenter.segments(word)
        assert span == Span(0.0, len(word) / 16000)


@pytest.mark.parametrize("name", ["numbers", "goforward", "something", "cards-005", "austen-0870", "jfk", "ivr-main"])
def test_a_short_word_in_a_long_silence(name: str, segmenter: Segmenter, waveform: Named) -> None:
    silence = np.zeros(32_000, np.float32)
    for centre in syllables(waveform(name)):
        word = waveform(name)[centre - 2000 : centre + 2000]
        (span,) = segmenter.segments(np.concatenate([silence, word, silence]))
        assert span.start <= 2.0
        assert span.end >= 2.25


def test_an_hour_of_scores(
    waveform: Named, score: Callable[[Waveform], Scorer], capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured, not judged: the state machine over one hour."""
    scorer = score(waveform("joined-180s"))
    samples = np.tile(waveform("joined-180s"), 20)
    scores, level = np.resize(scorer.p_silence, 359_998), np.resize(scorer.level_db, 360_000)
    times = []
    for _ in range(3):
        start = time.process_time()
        segments = GradedSegments(samples, OFFLINE, 960_000, 0.5)
        segments.follow(scores, level, len(scores))
        times.append(time.process_time() - start)
    assert len(segments.spans) > 200
    with capsys.disabled():
        print(f"\n1 h of scores, graded, {len(segments.spans)} segments: {min(times) * 1000:.1f} ms of one core")
