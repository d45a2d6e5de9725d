"""The reference's behaviour, for those who depend on its segment lists: silence schedules looked up once per chunk.

Reference: FunASR 1.4.16, `AutoModel.generate` with an FSMN-VAD model, and its streaming helper `DynamicStreamingVAD`.
All functions take the scores of the whole file and replay in which pieces the reference would have looked at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audio.fbank import frame_count
from audio.span import SAMPLE_RATE
from vad import endpoint
from vad.schedule import OFFLINE, STREAMING, Schedule

Scores = NDArray[np.float32]

LOOK_AHEAD = 2
"""Frames that wait for the features of the frames behind them until the last chunk."""
FIXED_THRESHOLD, DYNAMIC_THRESHOLD = 0.6, 0.5
FIXED_SILENCE_MS = 800
CHUNK_MS = 60_000


@dataclass(frozen=True, slots=True)
class CompatOptions:
    """Arguments of the reference. With `silence_ms` the silence is fixed, otherwise the schedule counts."""

    silence_ms: int | None = None
    schedule: Schedule = OFFLINE
    max_segment_ms: int = 60_000
    speech_threshold: float | None = None


class _Tracker:
    """Feeds chunks to the endpoint machine and collects what it says."""

    def __init__(self, p_silence: Scores, threshold: float, max_segment_ms: int) -> None:
        speech = endpoint.is_speech(p_silence, threshold)
        self._endpointer = endpoint.Endpointer(speech, limit=max_segment_ms // endpoint.FRAME_MS + 1)

    @property
    def speaking(self) -> bool:
        return self._endpointer.open

    def feed(self, samples: int, silence_ms: int, final: bool) -> list[list[int]]:
        """Look at the frames of all samples received so far; a list of [start or -1, end or -1] in ms."""
        pointer = self._endpointer
        stop = frame_count(samples) if final else max(0, frame_count(samples) - LOOK_AHEAD)
        pauses = endpoint.pause_table(Schedule.fixed(silence_ms))
        trimmed = max(0, max(0, silence_ms - endpoint.CONFIRM_MS) // endpoint.FRAME_MS - endpoint.LOOKAHEAD - 1)
        events: list[list[int]] = []
        while event := pointer.advance(stop, pauses):
            if event == endpoint.STARTED:
                events.append([pointer.start * endpoint.FRAME_MS, -1])
            else:
                self._end(events, pointer.next - (trimmed if event == endpoint.PAUSED else 0))
        if final and pointer.open:
            self._end(events, stop)
        return events

    def _end(self, events: list[list[int]], frame: int) -> None:
        self._endpointer.close(frame, forget=True)
        if events and events[-1][1] < 0:
            events[-1][1] = frame * endpoint.FRAME_MS
        else:
            events.append([-1, frame * endpoint.FRAME_MS])


def offline(p_silence: Scores, samples: int, options: CompatOptions, chunk_ms: int = CHUNK_MS) -> list[list[int]]:
    """Segments [start, end] in ms of a file that the reference reads in chunks of a given length."""
    events = [event for _, event in _chunks(p_silence, samples, options, chunk_ms, flush=True)]
    starts = [start for start, _ in events if start >= 0]
    ends = [end for _, end in events if end >= 0]
    return [[start, end] for start, end in zip(starts, ends, strict=True)]


def streaming(p_silence: Scores, samples: int, options: CompatOptions, chunk_ms: int) -> list[list[int]]:
    """Events [chunk number, start or -1, end or -1] of a stream fed in chunks."""
    return [[number, *event] for number, event in _chunks(p_silence, samples, options, chunk_ms, flush=False)]


def _chunks(
    p_silence: Scores, samples: int, options: CompatOptions, chunk_ms: int, flush: bool
) -> Iterator[tuple[int, list[int]]]:
    """Every event with the number of its chunk. The schedule looks at how many chunks began inside speech."""
    fixed = options.silence_ms
    threshold = options.speech_threshold
    if threshold is None:
        threshold = DYNAMIC_THRESHOLD if fixed is None else FIXED_THRESHOLD
    tracker = _Tracker(p_silence, threshold, options.max_segment_ms)
    size = chunk_ms * SAMPLE_RATE // 1000
    count = samples // size + 1 if flush else -(-samples // size)
    running_ms = 0
    for number in range(count):
        if running_ms or tracker.speaking:
            running_ms += chunk_ms
        silence_ms = options.schedule.silence_ms(running_ms) if fixed is None else fixed
        events = tracker.feed(min(samples, (number + 1) * size), silence_ms, number == count - 1)
        if events:
            running_ms = 0
        yield from ((number, event) for event in events)


def dynamic_streaming(
    p_silence: Scores, samples: int, chunk_ms: int, schedule: Schedule = STREAMING, max_segment_ms: int = 60_000
) -> list[list[int]]:
    """Finished segments [chunk number, start, end] of the streaming helper; number -1: found when the stream ended.

    Args:
        p_silence: scores of the waveform and the 10 ms of zeros that the helper adds at the end.
        samples: length of the waveform without them.
    """
    tracker = _Tracker(p_silence, DYNAMIC_THRESHOLD, max_segment_ms)
    size = chunk_ms * SAMPLE_RATE // 1000
    found: list[list[int]] = []
    opened: int | None = None
    for number in [*range(-(-samples // size)), -1]:
        fed = samples + SAMPLE_RATE // 100 if number < 0 else min(samples, (number + 1) * size)
        running_ms = 0 if opened is None else fed * 1000 // SAMPLE_RATE - opened
        for start, end in tracker.feed(fed, schedule.silence_ms(running_ms), number < 0):
            opened = start if start >= 0 else opened
            if end >= 0 and opened is not None:
                found.append([number, opened, end])
                opened = None
    return found
