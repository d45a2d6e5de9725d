"""The named test waveforms of the goldens, put together from the recordings in tests/data.

Everything is integer arithmetic on 16-bit samples, and every composition is checked against its published sha256.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

Samples = NDArray[np.int16]

_RATE = 16_000
_DATA = Path(__file__).parent / "data"
# Stretches of speech without a pause: recording, first and last 10 ms.
_DENSE = (
    ("austen-0870", 17, 694),
    ("austen-0880", 20, 279),
    ("jfk", 538, 781),
    ("austen-0890", 136, 509),
    ("numbers", 28, 335),
    ("austen-0920", 25, 585),
    ("jfk", 817, 1058),
    ("austen-0930", 11, 292),
    ("cards-005", 136, 326),
    ("goforward", 47, 218),
)
# Recordings in turn, each with the milliseconds of zeros behind it (the gaps have a shorter period).
_JOIN_ORDER = (
    *("ivr-main", "jfk", "goforward", "austen-0870", "numbers", "austen-0890", "something", "austen-0920"),
    *("cards-005", "austen-0880", "austen-0930"),
)
_JOIN_GAPS_MS = (300, 1200, 100, 700, 2500, 200, 500, 1600, 50, 900)


def recording(name: str) -> Samples:
    """A file of tests/data, 16 kHz mono."""
    samples, rate = soundfile.read(_DATA / f"{name}.wav", dtype="int16")
    assert rate == _RATE
    assert samples.ndim == 1
    return np.asarray(samples, np.int16)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * _RATE), np.int16)


def noise(samples: int, amplitude: int) -> Samples:
    """White noise of a linear congruential generator (Numerical Recipes' constants), its upper 16 bits."""
    states = itertools.accumulate(range(samples), lambda s, _: (1664525 * s + 1013904223) & 0xFFFFFFFF, initial=1)
    upper = np.fromiter(itertools.islice(states, 1, None), np.uint32, samples) >> 16
    return (upper % (2 * amplitude + 1)).astype(np.int32).astype(np.int16) - np.int16(amplitude)


def dense(seconds: float) -> Samples:
    """Speech without pauses, for as long as asked."""
    cycle = np.concatenate([recording(name)[first * 160 : last * 160] for name, first, last in _DENSE])
    return np.resize(cycle, round(seconds * _RATE))


def joined(seconds: float) -> Samples:
    """All recordings in turn, with gaps of 50 to 2500 ms."""
    length = round(seconds * _RATE)
    parts: list[Samples] = []
    for name, gap_ms in zip(itertools.cycle(_JOIN_ORDER), itertools.cycle(_JOIN_GAPS_MS), strict=False):
        parts += [recording(name), silence(gap_ms / 1000)]
        if sum(map(len, parts)) >= length:
            break
    return np.concatenate(parts)[:length]


def with_noise(samples: Samples, amplitude: int) -> Samples:
    mixed = samples.astype(np.int32) + noise(len(samples), amplitude)
    return np.clip(mixed, -32768, 32767).astype(np.int16)


def _gap() -> Samples:
    return np.concatenate([recording("austen-0870"), silence(20), recording("austen-0920")])


_COMPOSITIONS: dict[str, tuple[Callable[[], Samples], str]] = {
    "silence-10s": (
        lambda: silence(10),
        "ac2878215ad33205d1732578c89f25ededaad1b676911c540825bcf4baa42d9b",
    ),
    "click-0.01s": (
        lambda: recording("jfk")[16000:16160],
        "22e750368bd99cec23c64d833b1b9b00052a38a23fff359e289ea4e5ae2cad20",
    ),
    "frame-0.025s": (
        lambda: recording("jfk")[16000:16400],
        "ec7855c29f8886e1b2d23d8f35c7e9eee84fb6ff6a84eabe2b754753c776fc84",
    ),
    "continuous-70s": (
        lambda: dense(70),
        "01a68b77f660c48f63412604837c2e23cfe78ed5d501fce7f396e0444dac95e2",
    ),
    "continuous-130s": (
        lambda: dense(130),
        "726d66be36fad800f8d450faa8686137906e5cbe00584bc6f54f2f795e7333ad",
    ),
    "gap-20s": (
        _gap,
        "2d0d3cdb994bfcd8e7bbe102be52bf5fcf88b3ed031ab326590ab0632f29eeea",
    ),
    "gap-20s-noise": (
        lambda: with_noise(_gap(), 30),
        "75c87784d7bd4d1ab73c92d0a3f8a208b029ac00a2465c2eb230a3aed1e2ff43",
    ),
    "noise-10s": (
        lambda: noise(10 * _RATE, 30),
        "e2fcc89fc4a9b0e76f47c3d8c5c9c887d0df2affaa5b2c8318bcf5f7532f4dc1",
    ),
    "noise-loud-10s": (
        lambda: noise(10 * _RATE, 2000),
        "61dab702760901d83b1438aa61d22ba47131e5114b7c1d9b9f4ba95bb7027ac6",
    ),
    "joined-180s": (
        lambda: joined(180),
        "ff1084284e2ddc483cb009783b07678c294eab373435259b7ccbd8db233978d9",
    ),
    "joined-60s": (
        lambda: joined(60),
        "c2757761ca44b20dc811fa472da8dc95d5e8c2d4878c4d7a4d8c07f93fd410f6",
    ),
}
NAMES = tuple(_COMPOSITIONS)


@cache
def waveform(name: str) -> NDArray[np.float32]:
    """A composition, or a recording, as float32 in [-1, 1]; shared by all callers, so read-only."""
    if name in _COMPOSITIONS:
        build, checksum = _COMPOSITIONS[name]
        samples = build()
        assert hashlib.sha256(samples.astype("<i2").tobytes()).hexdigest() == checksum, name
    else:
        samples = recording(name)
    result = samples.astype(np.float32) / np.float32(32768)
    result.flags.writeable = False
    return result
