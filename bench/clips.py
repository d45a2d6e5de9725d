"""Sound for measuring: any number of clips of real speech, no two alike, cut from the recordings of the tests."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

import numpy as np
import soundfile
from numpy.typing import NDArray

from bench.recordings import recordings

SAMPLE_RATE = 16_000
_STEP = 48_611
"""Samples from one clip's begin to the next one's; a prime, so that the begins repeat only after the whole sound."""
_BLOCK_SECONDS = 30


@functools.cache
def _sound() -> NDArray[np.int16]:
    """All recordings one after the other, 16 kHz."""
    parts = []
    for recording in recordings():
        samples, rate = soundfile.read(recording.path, dtype="int16")
        assert rate == SAMPLE_RATE, recording.path
        parts.append(samples)
    return np.concatenate(parts)


def pcm(number: int, seconds: float) -> NDArray[np.int16]:
    """The clip of this number."""
    sound = _sound()
    begin = number * _STEP % len(sound)
    count = round(seconds * SAMPLE_RATE)
    if begin + count <= len(sound):
        return sound[begin : begin + count]
    return np.resize(np.roll(sound, -begin), count)


def waveform(count: int, seconds: float) -> NDArray[np.float32]:
    """Clips 0 to `count` - 1 in one piece: float32, mono, 16 kHz, in [-1, 1]."""
    length = round(seconds * SAMPLE_RATE)
    samples = np.empty(count * length, np.float32)
    for number in range(count):
        samples[number * length : (number + 1) * length] = pcm(number, seconds)
    samples /= 32768
    return samples


def wav(number: int, seconds: float) -> bytes:
    """A clip as a file."""
    samples = pcm(number, seconds)
    return wav_header(len(samples)) + samples.tobytes()


def wav_header(samples: int) -> bytes:
    """What stands in front of so many 16-bit mono samples at 16 kHz."""
    size = 2 * samples
    form = struct.pack("<HHIIHH", 1, 1, SAMPLE_RATE, 2 * SAMPLE_RATE, 2, 16)
    return struct.pack("<4sI4s4sI16s4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, form, b"data", size)


def long_wav(seconds: int) -> Iterator[bytes]:
    """A file of any length in blocks of at most 30 s, so that it never lies in memory."""
    yield wav_header(seconds * SAMPLE_RATE)
    for number, begin in enumerate(range(0, seconds, _BLOCK_SECONDS)):
        yield pcm(number, min(_BLOCK_SECONDS, seconds - begin)).tobytes()


def long_wav_bytes(seconds: int) -> int:
    """The size of that file."""
    return len(wav_header(0)) + 2 * seconds * SAMPLE_RATE
