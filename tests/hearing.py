"""Stages that hear numbers: a second of samples that are all 7 is the segment "number 7."."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from app.stages import RECOGNIZER, SpeechRequest
from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span
from engine.recognition import Capabilities, Hypothesis, Recognition, Word
from engine.stage import Output

KILLER = 666
"""The number that kills the process of whoever hears it."""


class NumberVad:
    """Every second that is not all zeros is a span."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[Waveform, SpeechRequest]] = {}

    def describe(self) -> Mapping[str, Any]:
        return {}

    def submit(self, call_id: int, waveform: Waveform, request: SpeechRequest) -> None:
        self._calls[call_id] = (waveform, request)

    def cancel(self, call_id: int) -> None:
        self._calls.pop(call_id, None)

    def step(self) -> Iterable[Output]:
        call_id = next(iter(self._calls))
        waveform, request = self._calls.pop(call_id)
        seconds = (Span(float(start), start + 1.0) for start in range(len(waveform) // SAMPLE_RATE))
        spans = [span for span in seconds if waveform[span.slice()].any()]
        if request.decoding is None or not spans:
            return [Output(call_id, spans)]
        return [Output(call_id, spans, then=(RECOGNIZER, Recognition(tuple(spans), request.decoding)))]

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    def close(self) -> None:
        self._calls.clear()


class NumberRecognizer:
    """A segment a step, of each call in turn; a step takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._calls: dict[int, deque[Hypothesis]] = {}
        self.counters = {"segments": 0.0, "cancelled": 0.0}
        self.capabilities = Capabilities("numbers", 30.0, ("en", "zh", "de"), True, True, False, True)

    def describe(self) -> Mapping[str, Any]:
        return {"capabilities": self.capabilities}

    def submit(self, call_id: int, waveform: Waveform, request: Recognition) -> None:
        numbers = [round(float(waveform[span.slice()][0]) * 32768) for span in request.spans]
        if KILLER in numbers:
            os._exit(7)
        self._calls[call_id] = deque(_hypothesis(index, number) for index, number in enumerate(numbers))

    def cancel(self, call_id: int) -> None:
        self.counters["cancelled"] += self._calls.pop(call_id, None) is not None

    def step(self) -> Iterable[Output]:
        time.sleep(self._seconds)
        call_id = next(iter(self._calls))
        hypotheses = self._calls.pop(call_id)
        hypothesis = hypotheses.popleft()
        if hypotheses:
            self._calls[call_id] = hypotheses
        self.counters["segments"] += 1
        return [Output(call_id, hypothesis, last=not hypotheses)]

    @property
    def busy(self) -> bool:
        return bool(self._calls)

    def close(self) -> None:
        self._calls.clear()


def _hypothesis(index: int, number: int) -> Hypothesis:
    words = (Word(" number", 0.1, 0.5), Word(f" {number}.", 0.5, 0.9))
    return Hypothesis(index, f"number {number}.", words, language="en")


def load_broken() -> NumberVad:
    """A factory that cannot load."""
    raise RuntimeError("no space left on the device")


def recording(*numbers: int, seconds: float = 1.0) -> bytes:
    """A WAV file of so many seconds of each number."""
    sound = b"".join(np.full(round(seconds * SAMPLE_RATE), number, "<i2").tobytes() for number in numbers)
    return wav_header(len(sound)) + sound


def wav_header(size: int) -> bytes:
    """For 16-bit mono samples at 16 kHz."""
    rate = (SAMPLE_RATE).to_bytes(4, "little") + (2 * SAMPLE_RATE).to_bytes(4, "little")
    form = b"fmt " + (16).to_bytes(4, "little") + b"\1\0\1\0" + rate + b"\2\0\x10\0"
    return b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVE" + form + b"data" + size.to_bytes(4, "little")
