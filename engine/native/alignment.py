"""Word times of Whisper: dynamic time warping over the attention of its decoder to its encoder.

The method is the one published with Whisper's code (`timing.py`, after arXiv 2212.04356): of a few attention heads that
follow the sound, the weights over the frames of the clip are standardized over the tokens, smoothed by a median over
seven frames and averaged; the cheapest monotonic path through them gives the frame at which each token begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from audio.shared import Waveform
from audio.span import to_samples, to_seconds
from engine.native.cross_attention import Clip, Decoder
from engine.native.dtw import first_frames

SECONDS_PER_FRAME = 0.02
_MEDIAN_FRAMES = 7


@dataclass(frozen=True, slots=True)
class Utterance:
    """A clip and the text tokens to be found in it. `prompt` are the tokens before the text, the first one the
    start-of-transcript token; `states` is the clip's encoder output (frames, width), if known."""

    audio: Waveform
    prompt: Sequence[int]
    text: Sequence[int]
    states: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """`boundaries` (text tokens + 1,) are seconds: token i lasts from i to i + 1. `no_speech_prob` is Whisper's."""

    boundaries: NDArray[np.float64]
    no_speech_prob: float


class Aligner:
    """Aligns text tokens with clips, several clips at a time."""

    def __init__(self, decoder: Decoder, end_token: int, no_speech_token: int) -> None:
        self._decoder = decoder
        self._end = end_token
        self._no_speech = no_speech_token

    def align(self, utterances: Sequence[Utterance]) -> list[Alignment]:
        """Times of the tokens of each utterance; a batch gives what each would give alone."""
        attention = self._decoder.attend(
            [Clip(u.audio, [*u.prompt, *u.text, self._end], u.states) for u in utterances], start_index=0
        )
        silence = attention.start[:, self._no_speech].exp().tolist()
        results = []
        for utterance, weights, no_speech_prob in zip(utterances, attention.weights, silence, strict=True):
            duration = to_seconds(len(utterance.audio))
            prompt, text = len(utterance.prompt), len(utterance.text)
            times = _boundaries(weights[:, : prompt + text + 1], prompt, duration) if text else np.zeros(1)
            results.append(Alignment(np.minimum(times, duration), no_speech_prob))
        return results


def _boundaries(weights: torch.Tensor, prompt_length: int, duration: float) -> NDArray[np.float64]:
    """Begin of each text token and of the end token, in seconds.

    A row of attention belongs to the token that was read, and so looks for the one that comes next: the last token of
    the prompt finds the first of the text.
    """
    frames = max(1, min(weights.shape[-1], -(-to_samples(duration) // to_samples(SECONDS_PER_FRAME))))
    inside = weights[..., :frames]
    inside = inside / inside.sum(-1, keepdim=True)
    deviation, mean = torch.std_mean(inside, dim=-2, keepdim=True, correction=0)
    standard = _median((inside - mean) / deviation.clamp_min(torch.finfo(inside.dtype).tiny))
    similarity = standard.mean(0)[prompt_length - 1 : -1]
    return np.asarray(first_frames(similarity.cpu().numpy()) * SECONDS_PER_FRAME, np.float64)


def _median(x: torch.Tensor) -> torch.Tensor:
    """A running median over the last dimension; the ends are mirrored."""
    side = _MEDIAN_FRAMES // 2
    if x.shape[-1] <= side:
        return x
    padded = functional.pad(x, (side, side), mode="reflect")
    return padded.unfold(-1, _MEDIAN_FRAMES, 1).median(-1).values
