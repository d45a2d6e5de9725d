"""Conversations with exact ground truth, put together from utterances of known voices.

Every turn is utterances of one voice, joined and cut to length at a quiet place; turns follow each other with pauses or
none. Each voice has its own level. Rooms add reverberation and noise, telephones an 8 kHz mu-law copy. The same seed
gives the same samples. A voice speaks again what it said before once its utterances are used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from audio.span import SAMPLE_RATE, to_samples, to_seconds

Samples = NDArray[np.float32]
Condition = Literal["clean", "room", "telephone"]
CONDITIONS: tuple[Condition, ...] = ("clean", "room", "telephone")

TUNING = (
    *("allison", "carlo", "af_bella", "am_michael", "bf_emma", "bm_george", "zf_xiaoxiao", "zm_yunxi"),
    *("af_kore", "am_fenrir", "am_onyx", "bf_alice", "bm_daniel", "zf_xiaoni", "zm_yunjian"),
)
HELD_OUT = (
    *("june", "irina", "librivox", "jfk", "af_sarah", "am_puck", "bf_isabella", "bm_lewis", "zf_xiaoyi", "zm_yunyang"),
)
"""No voice is in both."""

_SHORTEST_TURN, _LONGEST_TURN = 0.6, 15.0
_TARGET_RMS = 0.05
_FADE_SAMPLES = 80
_TELEPHONE_RATE = 8000
_MU = 255.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds in which a voice speaks."""

    start: float
    end: float
    voice: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """(samples,) at 16 kHz, and its turns in order, without overlap; a pause above 0.1 s belongs to none."""

    name: str
    waveform: Samples
    turns: tuple[Turn, ...]

    @property
    def voices(self) -> int:
        return len({turn.voice for turn in self.turns})


def read_voices(directory: Path, names: Sequence[str]) -> dict[str, list[Samples]]:
    """Utterances of each voice, at one common level.

    Raises:
        FileNotFoundError: a voice is not there; bench/voice_builder.py makes them.
    """
    voices = {}
    for name in names:
        paths = sorted((directory / name).glob("*.wav"))
        if not paths:
            raise FileNotFoundError(f"{directory / name}: no utterances; see bench/voice_builder.py")
        utterances = [np.asarray(soundfile.read(path, dtype="float32")[0], np.float32) for path in paths]
        power = np.mean(np.concatenate(utterances) ** 2)
        voices[name] = [utterance * np.float32(_TARGET_RMS / np.sqrt(power)) for utterance in utterances]
    return voices


def conversation(
    voices: Mapping[str, Sequence[Samples]], *, speakers: int, seconds: float, condition: Condition, seed: int
) -> Conversation:
    """About `seconds` of talk between as many voices, all of which speak at least twice where there is time."""
    random = np.random.default_rng([seed, speakers, CONDITIONS.index(condition)])
    chosen = [str(name) for name in random.permutation(sorted(voices))[:speakers]]
    speak = {name: _Voice(name, voices[name], random) for name in chosen}
    parts: list[Samples] = [_silence(random.uniform(0.2, 1.0))]
    turns: list[Turn] = []
    at = len(parts[0])
    for name in _order(chosen, random):
        if to_seconds(at) >= seconds and {turn.voice for turn in turns} == set(chosen):
            break
        for piece, pause in speak[name].turn():
            turns.append(Turn(to_seconds(at), to_seconds(at + len(piece)), name))
            parts += [piece, _silence(pause)]
            at += len(piece) + len(parts[-1])
    waveform = _recorded(np.concatenate(parts), condition, random)
    name = f"{condition}-{speakers}-speakers-{round(to_seconds(at))}s-seed-{seed}"
    return Conversation(name, waveform, tuple(turns))


class _Voice:
    """Speaks turns of random length, at its own level, through a shuffled deck of its utterances."""

    def __init__(self, name: str, utterances: Sequence[Samples], random: np.random.Generator) -> None:
        self._random = random
        self._utterances = utterances
        self._gain = np.float32(10 ** (random.uniform(-9.0, 3.0) / 20))
        self._deck: list[int] = []

    def turn(self) -> list[tuple[Samples, float]]:
        """Pieces of speech with the pause behind each."""
        wanted = _turn_seconds(self._random)
        pieces: list[tuple[Samples, float]] = []
        while wanted >= _SHORTEST_TURN or not pieces:
            piece = _cut(self._next(), to_samples(max(wanted, _SHORTEST_TURN)))
            pieces.append((piece * self._gain, float(self._random.uniform(0.12, 0.4))))
            wanted -= to_seconds(len(piece)) + pieces[-1][1]
        # Between turns people pause, or do not.
        pause = 0.02 if self._random.random() < 0.25 else float(self._random.exponential(0.5)) + 0.05
        pieces[-1] = (pieces[-1][0], min(pause, 3.0))
        return pieces

    def _next(self) -> Samples:
        if not self._deck:
            self._deck = self._random.permutation(len(self._utterances)).tolist()
        return self._utterances[self._deck.pop()]


def _turn_seconds(random: np.random.Generator) -> float:
    kind = random.random()
    if kind < 0.25:
        return float(random.uniform(_SHORTEST_TURN, 1.5))
    if kind < 0.8:
        return float(random.uniform(1.5, 6.0))
    return float(random.uniform(6.0, _LONGEST_TURN))


def _order(names: Sequence[str], random: np.random.Generator) -> list[str]:
    """Who speaks when: everybody in turn at first, then some more than others, nobody twice in a row."""
    order = [*names, *names]
    weights = random.dirichlet(np.full(len(names), 3.0))
    while len(order) < 2000:
        name = str(random.choice(names, p=weights))
        if name != order[-1] or len(names) == 1:
            order.append(name)
    return order


def _cut(utterance: Samples, samples: int) -> Samples:
    """At most about so many samples, ended at the quietest 10 ms nearby, and faded so that joints do not click."""
    if len(utterance) > samples + SAMPLE_RATE // 4:
        blocks = utterance[: len(utterance) // 160 * 160].reshape(-1, 160)
        level = np.convolve((blocks**2).mean(1), np.ones(3) / 3, "same")
        low = max(samples - SAMPLE_RATE // 5, round(_SHORTEST_TURN * SAMPLE_RATE)) // 160
        utterance = utterance[: (low + int(np.argmin(level[low : low + 40])) + 1) * 160]
    utterance = utterance.copy()
    ramp = np.linspace(0.0, 1.0, _FADE_SAMPLES, dtype=np.float32)
    utterance[:_FADE_SAMPLES] *= ramp
    utterance[-_FADE_SAMPLES:] *= ramp[::-1]
    return utterance


def _recorded(speech: Samples, condition: Condition, random: np.random.Generator) -> Samples:
    if condition == "room":
        speech = _in_room(speech, random)
        speech = speech + _pink(len(speech), random) * np.float32(_TARGET_RMS * 10 ** (random.uniform(-28, -18) / 20))
    elif condition == "telephone":
        speech = _telephone(speech)
    else:
        speech = speech + _pink(len(speech), random) * np.float32(_TARGET_RMS * 10 ** (-45 / 20))
    return np.clip(speech, -1.0, 1.0).astype(np.float32)


def _in_room(speech: Samples, random: np.random.Generator) -> Samples:
    """Convolved with an exponentially decaying tail of noise: 0.2 to 0.4 s of reverberation, 10 dB below the voice."""
    seconds = random.uniform(0.2, 0.4)
    samples = to_samples(seconds)
    tail = random.standard_normal(samples) * 10 ** (-3.0 * np.arange(samples) / samples)
    tail[:32] = 0.0
    tail *= 10 ** (-10 / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    size = 1 << (len(speech) + samples).bit_length()
    wet = np.fft.irfft(np.fft.rfft(speech, size) * np.fft.rfft(tail, size), size)[: len(speech)]
    return wet.astype(np.float32)


def _pink(samples: int, random: np.random.Generator) -> Samples:
    """Noise of 3 dB less an octave, RMS 1."""
    spectrum = np.fft.rfft(random.standard_normal(samples))
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), samples * 50 / SAMPLE_RATE))
    noise = np.fft.irfft(spectrum, samples)
    return (noise / np.sqrt(np.mean(noise**2))).astype(np.float32)


def _telephone(speech: Samples) -> Samples:
    """8 kHz, mu-law of 8 bits, and back (ITU-T G.711's curve)."""
    narrow = np.clip(soxr.resample(speech, SAMPLE_RATE, _TELEPHONE_RATE), -1.0, 1.0)
    code = np.sign(narrow) * np.log1p(_MU * np.abs(narrow)) / np.log1p(_MU)
    code = np.round(code * 127) / 127
    linear = np.sign(code) * np.expm1(np.abs(code) * np.log1p(_MU)) / _MU
    wide = soxr.resample(linear.astype(np.float32), _TELEPHONE_RATE, SAMPLE_RATE)
    return np.resize(wide, len(speech)).astype(np.float32)


def _silence(seconds: float) -> Samples:
    return np.zeros(to_samples(seconds), np.float32)
