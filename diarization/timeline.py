"""Windows with speakers to turns: who speaks from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span, to_seconds
from diarization.windows import SHIFT_SAMPLES, Window

SHORT_TURN = 0.5
"""Seconds below which a turn has to be certain to stay."""

_NEIGHBOUR_SECONDS = 1.0
"""How far away a doubtful short turn may look for a speaker."""
_STEP = SAMPLE_RATE // 100
_QUIET_STEPS = 5
"""Levels are averaged over 50 ms, so that a change does not fall into a stop consonant."""


@dataclass(frozen=True, slots=True)
class SpeakerTurn:
    """Seconds in which one speaker talks; `speaker` counts from 0 in order of appearance."""

    start: float
    end: float
    speaker: int

    @property
    def duration(self) -> float:
        return self.end - self.start


def turns_of(
    waveform: Waveform,
    spans: Sequence[Span],
    windows: Sequence[Window],
    labels: NDArray[np.int64],
    certain: NDArray[np.bool_],
) -> list[SpeakerTurn]:
    """Turns in order, without overlap; together they cover the spans that have windows.

    Inside a span a change lies at the quietest place around the middle between two windows. A turn below 0.5 s none of
    whose windows is certain goes to the nearer neighbour.

    Args:
        spans: ascending, not overlapping.
        windows: those of `windows_of`.
        labels: (windows,) speakers.
        certain: (windows,) whether a window fits its speaker clearly better than any other.
    """
    pieces: list[SpeakerTurn] = []
    sure: list[bool] = []
    for number, (window, label, clear) in enumerate(zip(windows, labels.tolist(), certain.tolist(), strict=True)):
        span = spans[window.span]
        end = min(span.end, to_seconds(len(waveform)))
        if number and windows[number - 1].span == window.span:
            if pieces[-1].speaker == label:
                sure[-1] = sure[-1] or clear
                continue
            change = _quietest(waveform, windows[number - 1], window)
            pieces[-1] = replace(pieces[-1], end=change)
            pieces.append(SpeakerTurn(change, end, label))
        else:
            pieces.append(SpeakerTurn(max(0.0, span.start), end, label))
        sure.append(clear)
    return joined(_decided(pieces, sure))


def joined(turns: Sequence[SpeakerTurn], pause: float = 0.0) -> list[SpeakerTurn]:
    """The same turns, those of one speaker that follow each other within a pause made one."""
    result: list[SpeakerTurn] = []
    for turn in turns:
        if result and result[-1].speaker == turn.speaker and turn.start - result[-1].end <= pause:
            result[-1] = replace(result[-1], end=turn.end)
        else:
            result.append(turn)
    return result


def _quietest(waveform: Waveform, before: Window, after: Window) -> float:
    """The quietest place within half a shift around the middle of what two windows share, in seconds."""
    middle = (before.last + after.first) // 2
    reach = SHIFT_SAMPLES // 2
    first = max(middle - reach, before.first)
    samples = waveform[first : min(middle + reach, after.last)]
    steps = len(samples) // _STEP
    if steps <= _QUIET_STEPS:
        return to_seconds(middle)
    power = np.square(samples[: steps * _STEP].reshape(steps, _STEP)).mean(1)
    smooth = np.convolve(power, np.full(_QUIET_STEPS, 1 / _QUIET_STEPS), "valid")
    return to_seconds(first + (int(smooth.argmin()) + _QUIET_STEPS // 2) * _STEP + _STEP // 2)


def _decided(pieces: Sequence[SpeakerTurn], sure: Sequence[bool]) -> list[SpeakerTurn]:
    """Doubtful short pieces with the speaker of the nearer neighbour that is neither, if one is near."""
    kept = [clear or piece.duration >= SHORT_TURN for piece, clear in zip(pieces, sure, strict=True)]
    result = list(pieces)
    for number, piece in enumerate(pieces):
        if kept[number]:
            continue
        near = [
            (distance, pieces[other].speaker)
            for other, distance in (
                (number - 1, piece.start - pieces[number - 1].end if number else np.inf),
                (number + 1, pieces[number + 1].start - piece.end if number + 1 < len(pieces) else np.inf),
            )
            if distance <= _NEIGHBOUR_SECONDS and kept[other]
        ]
        if near:
            result[number] = replace(piece, speaker=min(near)[1])
    return result


def channel_turns(spans: Sequence[Sequence[Span]]) -> list[SpeakerTurn]:
    """The turns of a recording whose channels hold a speaker each, from the spans of each channel.

    In order of their start; they may overlap. Speakers are numbered by first appearance, silent channels are none.
    """
    found = sorted((span.start, span.end, channel) for channel, of in enumerate(spans) for span in of)
    numbers = {channel: number for number, channel in enumerate(dict.fromkeys(channel for *_, channel in found))}
    return [SpeakerTurn(start, end, numbers[channel]) for start, end, channel in found]
