from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from diarization.options import DiarizationOptions, KnownSpeaker


def reference(seconds: float) -> Any:
    return np.zeros(round(seconds * 16_000), np.float32)


@pytest.mark.field("D3")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_speakers": 0}, "num_speakers is 0, allowed are 1 to 50"),
        ({"max_speakers": 51}, "max_speakers is 51"),
        ({"min_speakers": 3, "max_speakers": 2}, "min_speakers is 3, more than max_speakers 2"),
        ({"num_speakers": 2, "max_speakers": 2}, "num_speakers excludes"),
        ({"num_speakers": 2, "min_speakers": 1}, "num_speakers excludes"),
    ],
)
def test_impossible_counts(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiarizationOptions(**options)


def test_bounds() -> None:
    assert (DiarizationOptions().fewest, DiarizationOptions().most) == (1, 50)
    assert (DiarizationOptions(num_speakers=3).fewest, DiarizationOptions(num_speakers=3).most) == (3, 3)
    assert (DiarizationOptions(min_speakers=2).fewest, DiarizationOptions(max_speakers=4).most) == (2, 4)


@pytest.mark.parametrize("seconds", [0.0, 1.9, 10.1])
def test_reference_of_a_wrong_length(seconds: float) -> None:
    with pytest.raises(ValueError, match="allowed are 2 to 10 s"):
        KnownSpeaker("Ada", reference(seconds))


def test_known_speakers_are_few_and_named() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        KnownSpeaker(" ", reference(3))
    known = tuple(KnownSpeaker(name, reference(3)) for name in "abcde")
    with pytest.raises(ValueError, match="at most 4"):
        DiarizationOptions(known_speakers=known)
    with pytest.raises(ValueError, match="same name"):
        DiarizationOptions(known_speakers=(known[0], known[0]))
