from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import compositions
from vad.compat import CHUNK_MS, CompatOptions, dynamic_streaming, offline, streaming
from vad.options import SegmentationOptions
from vad.schedule import OFFLINE, Schedule
from vad.scoring import Scorer
from vad.segmenter import Segmenter

Waveform = NDArray[np.float32]
INPUTS = [
    *("jfk", "austen-0870", "austen-0880", "austen-0890", "austen-0920", "austen-0930", "goforward", "numbers"),
    *("something", "cards-005", "ivr-main", "nano-0.5s", "nano-3.1s", "nano-29.7s", *compositions.NAMES),
]


def reference_options(mode: Mapping[str, Any]) -> tuple[CompatOptions, int]:
    """What the golden file says of a mode: options and chunk length."""
    call = mode["call"]
    schedule = OFFLINE
    if "silence_schedule" in call:
        schedule = Schedule(tuple((limit, silence) for limit, silence in call["silence_schedule"]))
    fixed = call.get("max_end_silence_time", None if call.get("dynamic_silence", True) else 800)
    cap = mode["model"].get("max_single_segment_time", 60_000)
    return CompatOptions(fixed, schedule, cap), call.get("chunk_size", CHUNK_MS)


@pytest.mark.parametrize("name", INPUTS)
def test_all_lists_equal_the_reference(
    name: str,
    golden: Mapping[str, Any],
    waveform: Callable[[str], Waveform],
    score: Callable[[Waveform], Scorer],
) -> None:
    samples = waveform(name)
    scores = score(samples).p_silence
    with_tail = score(np.append(samples, np.zeros(160, np.float32))).p_silence
    expected = dict(golden["inputs"][name])
    assert expected.pop("seconds") == len(samples) / 16000
    assert len(expected) == 13
    found = {mode: offline(scores, len(samples), *reference_options(golden["modes"][mode])) for mode in golden["modes"]}
    for chunk_ms in (60, 1000):
        found[f"stream_{chunk_ms}ms"] = streaming(scores, len(samples), CompatOptions(), chunk_ms)
        found[f"dynamic_stream_{chunk_ms}ms"] = dynamic_streaming(with_tail, len(samples), chunk_ms)
    for mode, segments in expected.items():
        assert found[mode] == ([] if isinstance(segments, dict) else segments), mode  # a dict: the reference raises


def test_every_golden_input_is_tested(golden: Mapping[str, Any]) -> None:
    assert sorted(golden["inputs"]) == sorted(INPUTS)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("default", SegmentationOptions(mode="compat")),
        ("fixed_800", SegmentationOptions(mode="compat", fixed_silence_ms=800)),
        ("cap_30s", SegmentationOptions(mode="compat", max_segment_seconds=30)),
        ("schedule", SegmentationOptions(mode="compat", schedule=((5, 1500), (20, 800), (None, 300)))),
    ],
)
def test_through_the_segmenter(
    mode: str,
    options: SegmentationOptions,
    golden: Mapping[str, Any],
    waveform: Callable[[str], Waveform],
    segmenter: Segmenter,
) -> None:
    for name in ("continuous-130s", "joined-180s", "click-0.01s"):
        expected = golden["inputs"][name][mode]
        spans = segmenter.segments(waveform(name), options)
        found = [[round(span.start * 1000), round(span.end * 1000)] for span in spans]
        assert found == ([] if isinstance(expected, dict) else expected)
