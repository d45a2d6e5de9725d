from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vad.network import FsmnNetwork
from vad.options import SegmentationOptions
from vad.segmenter import Segmenter, step_together

Waveform = NDArray[np.float32]
Named = Callable[[str], Waveform]
FILES = [
    *("jfk", "austen-0870", "austen-0880", "austen-0890", "goforward", "numbers", "something", "cards-005"),
    *("ivr-main", "nano-0.5s", "nano-29.7s", "silence-10s", "click-0.01s", "continuous-70s", "gap-20s", "joined-60s"),
]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode is 'fast', allowed are 'graded' and 'compat'"),
        ({"max_segment_seconds": 0.5}, r"max_segment_seconds is 0\.5, allowed are 1\.0 to 3600\.0"),
        ({"max_segment_seconds": float("nan")}, "max_segment_seconds is nan"),
        ({"fixed_silence_ms": -1}, "fixed_silence_ms is -1, allowed are 0 to 60000"),
        ({"fixed_silence_ms": 500, "schedule": ((None, 500),)}, "exclude each other"),
        ({"speech_threshold": 1.0}, r"speech_threshold is 1\.0"),
        ({"speech_threshold": float("nan")}, "speech_threshold is nan"),
        ({"schedule": ((10.0, 500), (5.0, 400), (None, 300))}, "schedule row 2"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentationOptions(**options)


@pytest.mark.parametrize("mode", ["graded", "compat"])
@pytest.mark.parametrize("samples", [0, 1, 399, 400, 16000])
def test_nothing_in_nothing_out(mode: Any, samples: int, segmenter: Segmenter) -> None:
    assert segmenter.segments(np.zeros(samples, np.float32), SegmentationOptions(mode=mode)) == []


@pytest.mark.parametrize("length", [10, 16000, 80_000])
def test_samples_that_are_not_numbers(length: int, network: FsmnNetwork) -> None:
    broken = np.zeros(length, np.float32)
    broken[-1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        Segmenter(network, 2.0).segments(broken)


def test_integers_are_refused(segmenter: Segmenter) -> None:
    with pytest.raises(ValueError, match="1-D float32"):
        segmenter.start(np.zeros(16000, np.int16))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["graded", "compat"])
def test_sixteen_files_at_once(mode: Any, network: FsmnNetwork, segmenter: Segmenter, waveform: Named) -> None:
    options = SegmentationOptions(mode=mode, max_segment_seconds=30)
    alone = {name: segmenter.segments(waveform(name), options) for name in FILES}
    assert len({tuple(spans) for spans in alone.values()}) > 10

    small = Segmenter(network, piece_seconds=3.0)
    batched = {name: small.start(waveform(name), options) for name in FILES}
    while not all(job.done for job in batched.values()):
        step_together(list(batched.values()))
    assert {name: list(job.spans) for name, job in batched.items()} == alone

    interleaved = {name: small.start(waveform(name), options) for name in FILES}
    while not all(job.done for job in interleaved.values()):
        for job in interleaved.values():
            job.step()
    assert {name: list(job.spans) for name, job in interleaved.items()} == alone

    with ThreadPoolExecutor(4) as pool:
        threaded = pool.map(lambda name: small.segments(waveform(name), options), FILES)
    assert dict(zip(FILES, threaded, strict=True)) == alone


def test_one_bad_file_does_not_disturb_the_others(network: FsmnNetwork, segmenter: Segmenter, waveform: Named) -> None:
    broken = waveform("jfk").copy()
    broken[100_000] = np.inf
    small = Segmenter(network, 2.0)
    jobs = [small.start(broken), small.start(waveform("goforward")), small.start(waveform("jfk"))]
    while not all(job.done for job in jobs):
        step_together(jobs)
    with pytest.raises(ValueError, match="NaN or infinite"):
        _ = jobs[0].spans
    assert [list(job.spans) for job in jobs[1:]] == [segmenter.segments(waveform(n)) for n in ("goforward", "jfk")]


def test_segments_come_before_the_end_and_stay(network: FsmnNetwork, waveform: Named) -> None:
    job = Segmenter(network, 5.0).start(waveform("joined-60s"))
    seen = []
    while not job.done:
        job.step()
        assert job.spans[: len(seen)] == tuple(seen)
        seen = list(job.spans)
    halfway = Segmenter(network, 40.0).start(waveform("joined-60s"))
    halfway.step()
    assert not halfway.done
    assert halfway.spans == tuple(seen[: len(halfway.spans)])
    assert len(halfway.spans) >= 2


def test_a_lower_threshold_takes_more(segmenter: Segmenter, waveform: Named) -> None:
    def spoken(threshold: float) -> float:
        options = SegmentationOptions(speech_threshold=threshold, fixed_silence_ms=300)
        return sum(span.duration for span in segmenter.segments(waveform("joined-60s"), options))

    assert spoken(-0.5) > spoken(0.5) > spoken(0.9)


def test_the_last_piece_may_be_short(network: FsmnNetwork, segmenter: Segmenter, waveform: Named) -> None:
    samples = waveform("jfk")
    for piece in (1.0, 1.01, 10.9, 10.98, 10.99, 11.0):
        assert Segmenter(network, piece).segments(samples) == segmenter.segments(samples)
