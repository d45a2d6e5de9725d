"""Names for speakers, from references of known voices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audio.shared import Waveform
from audio.span import Span, to_seconds
from diarization.embedding import Embeddings, SpeakerEmbedder
from diarization.options import KnownSpeaker
from diarization.windows import SHIFT_SAMPLES, Window, cut, windows_of

_QUIET_DB = -30.0
"""Windows of a reference so far below its loudest hold no speech."""


def reference_embedding(embedder: SpeakerEmbedder, known: KnownSpeaker) -> Embeddings:
    """(D,) mean embedding of the windows of a reference that hold speech, not normalised: noise makes it shorter."""
    waveform = np.ascontiguousarray(known.reference, np.float32)
    windows = _spoken(waveform)
    mean: Embeddings = embedder(cut(waveform, windows)).mean(0)
    return mean


def names_of(means: Embeddings, references: Embeddings, names: Sequence[str], threshold: float) -> list[str | None]:
    """A name for each speaker, or None: the closest pair first, every name once, down to a cosine threshold.

    Args:
        means: (speakers, D) mean embeddings.
        references: (names, D).
    """
    found: list[str | None] = [None] * len(means)
    alike = _unit(means) @ _unit(references).T
    for _ in range(min(alike.shape)):
        speaker, number = divmod(int(alike.argmax()), alike.shape[1])
        if alike[speaker, number] < threshold:
            break
        found[speaker] = names[number]
        alike[speaker] = alike[:, number] = -np.inf
    return found


def _spoken(waveform: Waveform) -> list[Window]:
    windows = windows_of([Span(0.0, to_seconds(len(waveform)))], len(waveform))
    # The loudest half of each window counts, so that one with a pause in it is not taken for silence.
    power = [_loudest(waveform[window.first : window.last]) for window in windows]
    floor = max(power) * 10 ** (_QUIET_DB / 10)
    return [window for window, value in zip(windows, power, strict=True) if value >= floor]


def _loudest(samples: Waveform) -> float:
    halves = (samples[:SHIFT_SAMPLES], samples[-SHIFT_SAMPLES:])
    return max(float(np.mean(np.square(half))) for half in halves)


def _unit(rows: Embeddings) -> Embeddings:
    unit: Embeddings = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return unit
